// Figures of the chosen head, and the edges of the chosen token in both directions with their weights.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kMost = 200;

  class DetailsView {
    constructor(parent, model) {
      this.model = model;
      this.caption = explorer.element("h2", {});
      this.figures = explorer.element("dl", { className: "figures" });
      this.title = explorer.element("h3", {});
      this.hint = explorer.element("p", { className: "hint" });
      this.out = explorer.element("ol", { className: "edges" });
      this.into = explorer.element("ol", { className: "edges" });
      this.outTitle = explorer.element("h4", {});
      this.intoTitle = explorer.element("h4", {});
      this.histogram = explorer.element("canvas", { className: "histogram", ariaLabel: "distribution of degrees" });
      parent.append(this.caption, this.figures, this.histogram, this.title, this.hint, this.outTitle, this.out, this.intoTitle, this.into);
    }

    show() {
      this.showFigures();
      this.showToken();
      this.drawHistogram();
    }

    showFigures() {
      const { head, input, about } = this.model, rows = [];
      if (!head) return;
      this.caption.textContent = this.model.layerName(this.model.layer) + ", head " + this.model.headNumber;
      const { meta } = head, cut = head.columns.length < meta.chosen;
      rows.push(["edges", explorer.count(meta.edges), "edges"]);
      if (head.unit > 1) rows.push(["squares of 16 \u00d7 16", explorer.count(meta.chosen), "squares"]);
      if (cut) rows.push(["shown, the heaviest of each query", explorer.count(head.columns.length), "shown"]);
      rows.push(["density", explorer.percent(meta.density), "density"]);
      const { query, key } = this.model.sides;
      if (this.model.isAcross()) rows.push(["tokens of the translation, of the source", explorer.count(query.length) + ", " + explorer.count(key.length), "tokens"]);
      else rows.push([this.model.task === "graph" ? "nodes" : "tokens", explorer.count(query.length), "tokens"]);
      const second = about.tower ? ", second of the pair" : "";
      rows.push(about.name ? ["input", about.name + second, "example"] : ["example of validation", about.example + second, "example"]);
      const answer = input.predicted && input.predicted.length === 1 ? input.predicted[0] : null;
      if (answer !== null && input.labels && input.labels.length === 1 && input.labels[0] >= 0)
        rows.push(["right answer, and the model's", input.labels[0] + ", " + answer, "answer"]);
      else if (answer !== null) rows.push(["the model's answer", answer, "answer"]);
      const found = this.model.given && this.model.task === "graph" ? this.shared() : null;
      if (found !== null) rows.push(["of these in the input graph", explorer.count(found), "given"]);
      if (this.model.right && !this.model.isAcross() && head.unit === 1) {
        const right = this.model.right, hit = this.shared(right);
        rows.push(["right edges, and chosen ones", explorer.count(right.columns.length) + ", " + explorer.count(hit), "right"]);
      }
      this.figures.replaceChildren();
      for (const [name, value, id] of rows) {
        const figure = explorer.element("dd", { textContent: value });
        figure.dataset.figure = id;
        this.figures.append(explorer.element("dt", { textContent: name }), figure);
      }
      if (this.model.which > 0) return;
      // Exact numbers, for those who count.
      const data = document.getElementById("explorer").dataset;
      Object.assign(data, { edges: meta.edges, chosen: meta.chosen, kept: head.columns.length, queries: head.queries, keys: head.keys });
    }

    // Edges of the head that another list of the same nodes has too.
    shared(other = this.model.given) {
      const { head } = this.model, raster = window.edgewiseRaster;
      let count = 0;
      for (let i = 0; i < Math.min(head.queries, other.queries); ++i)
        for (let e = other.offsets[i]; e < other.offsets[i + 1]; ++e) count += raster.edgeAt(head, i, other.columns[e]) >= 0 ? 1 : 0;
      return count;
    }

    showToken() {
      const { head } = this.model, { query, key } = this.model.chosen(), { side } = explorer.state;
      if (!head) return;
      const node = Math.max(query, key), range = node < 0 && this.model.which === 0 ? explorer.shareRange(this.model) : null;
      this.hint.textContent = range ? "Click the matrix or the input to see a token's edges. Without one, the input is coloured by the share of queries " +
        "that look at a token: " + explorer.percent(range.least) + " to " + explorer.percent(range.most) + "." : "";
      this.title.textContent = node < 0 ? (range ? "Edges of a token" : "") : this.model.nodeName(node, this.model.isAcross() ? side : "query");
      const out = this.model.edgesOf(query), into = this.model.edgesInto(key);
      this.fill(this.outTitle, this.out, query < 0 ? null : "looks at ", out, "key");
      this.fill(this.intoTitle, this.into, key < 0 ? null : "is looked at by ", into, "query");
      this.outTitle.dataset.count = out.length;
      this.intoTitle.dataset.count = into.length;
    }
    // side: of the nodes at the other end.
    fill(title, list, words, edges, side) {
      const { head } = this.model, weight = (e) => (head.weights ? head.weights[e] : 1);
      title.textContent = words === null ? "" : words + explorer.count(edges.length);
      edges.sort((a, b) => weight(b[1]) - weight(a[1]) || a[0] - b[0]);
      list.replaceChildren(...edges.slice(0, kMost).map(([other, e]) => {
        const item = explorer.element("li", { tabIndex: -1 });
        const bar = explorer.element("span", { className: "bar" });
        bar.style.width = Math.max(1, 100 * weight(e)) + "%";
        const name = explorer.element("span", { className: "name", textContent: this.model.nodeName(other, side) });
        item.append(bar, name);
        if (head.weights) item.append(explorer.element("span", { className: "weight", textContent: explorer.number(head.weights[e]) }));
        item.addEventListener("click", () => explorer.set({ token: other * head.unit, side: this.model.isAcross() ? side : explorer.state.side }));
        return item;
      }));
      if (edges.length > kMost)
        list.append(explorer.element("li", { className: "more", textContent: "and " + explorer.count(edges.length - kMost) + " lighter ones" }));
    }

    // How many queries and keys have how many edges.
    drawHistogram() {
      if (!this.model.head) return;
      const { width, height } = this.degreesPicture();
      const surface = new explorer.CanvasSurface(this.histogram, width, height, Math.min(2, window.devicePixelRatio || 1));
      surface.context.clearRect(0, 0, width, height);
      this.paintDegrees(surface, width, height);
    }
    degreesPicture() {
      return { width: 260, height: 92, paint: (surface) => this.paintDegrees(surface, 260, 92) };
    }
    paintDegrees(surface, width, height) {
      const { degrees } = this.model, colours = explorer.colours();
      const most = Math.max(degrees.mostOfQuery, degrees.mostOfKey, 1), bins = Math.min(40, most + 1);
      const counts = (list) => {
        const result = new Float64Array(bins);
        for (const degree of list) result[Math.min(bins - 1, Math.floor((degree * bins) / (most + 1)))] += 1 / list.length;
        return result;
      };
      const queries = counts(degrees.byQuery), keys = counts(degrees.byKey);
      const top = Math.max(...queries, ...keys), wide = width / bins;
      surface.text(0, 11, "degrees: edges of a query", { colour: explorer.seriesColour(0), size: 11 });
      surface.text(150, 11, "of a key", { colour: explorer.seriesColour(1), size: 11 });
      const tall = (share) => (share / top) * (height - 34);
      for (let b = 0; b < bins; ++b) {
        surface.rect(b * wide, height - 14 - tall(queries[b]), wide * 0.45, tall(queries[b]), explorer.seriesColour(0));
        surface.rect(b * wide + wide * 0.45, height - 14 - tall(keys[b]), wide * 0.45, tall(keys[b]), explorer.seriesColour(1));
      }
      surface.text(0, height - 2, "0", { colour: colours.soft, size: 11 });
      surface.text(width, height - 2, String(most), { colour: colours.soft, size: 11, anchor: "end" });
    }
  }

  explorer.DetailsView = DetailsView;
})();
