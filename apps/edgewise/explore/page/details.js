// Figures of the chosen head, and the edges of the chosen token in both directions with their weights.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kMost = 200;

  class DetailsView {
    constructor(parent) {
      this.figures = explorer.element("dl", { className: "figures" });
      this.title = explorer.element("h3", {});
      this.hint = explorer.element("p", { className: "hint" });
      this.out = explorer.element("ol", { className: "edges" });
      this.into = explorer.element("ol", { className: "edges" });
      this.outTitle = explorer.element("h4", {});
      this.intoTitle = explorer.element("h4", {});
      this.histogram = explorer.element("canvas", { className: "histogram", ariaLabel: "distribution of degrees" });
      parent.append(this.figures, this.histogram, this.title, this.hint, this.outTitle, this.out, this.intoTitle, this.into);
    }

    show() {
      this.showFigures();
      this.showToken();
      this.drawHistogram();
    }

    showFigures() {
      const { head, input, about } = explorer.model, rows = [];
      if (!head) return;
      const { meta } = head, cut = head.columns.length < meta.chosen;
      rows.push(["edges", explorer.count(meta.edges), "edges"]);
      if (head.unit > 1) rows.push(["squares of 16 \u00d7 16", explorer.count(meta.chosen), "squares"]);
      if (cut) rows.push(["shown, the heaviest of each query", explorer.count(head.columns.length), "shown"]);
      rows.push(["density", explorer.percent(meta.density), "density"]);
      rows.push(["tokens", explorer.count(explorer.model.length), "tokens"]);
      if (about) rows.push(["example of validation", about.example + (about.tower ? ", second of the pair" : ""), "example"]);
      if (input && input.labels && input.labels.length === 1)
        rows.push(["right answer, and the model's", input.labels[0] + ", " + (input.predicted ? input.predicted[0] : "?"), "answer"]);
      this.figures.replaceChildren();
      for (const [name, value, id] of rows) {
        const figure = explorer.element("dd", { textContent: value });
        figure.dataset.figure = id;
        this.figures.append(explorer.element("dt", { textContent: name }), figure);
      }
      // Exact numbers, for those who count.
      const data = document.getElementById("explorer").dataset;
      Object.assign(data, { edges: meta.edges, chosen: meta.chosen, kept: head.columns.length, queries: head.queries, keys: head.keys });
    }

    showToken() {
      const { head } = explorer.model, { token } = explorer.state;
      if (!head) return;
      const node = token < 0 ? -1 : Math.floor(token / head.unit);
      const range = node < 0 ? explorer.shareRange() : null;
      this.hint.textContent = range ? "Click the matrix or the input to see a token's edges. Without one, the input is coloured by the share of queries " +
        "that look at a token: " + explorer.percent(range.least) + " to " + explorer.percent(range.most) + "." : "";
      this.title.textContent = node < 0 ? "Edges of a token" : explorer.nodeName(node, head.unit);
      const out = [], into = [];
      if (node >= 0 && node < head.queries)
        for (let e = head.offsets[node]; e < head.offsets[node + 1]; ++e) out.push([head.columns[e], e]);
      if (node >= 0 && node < head.keys) {
        const back = explorer.transposedOf(head);
        for (let n = back.offsets[node]; n < back.offsets[node + 1]; ++n) into.push([back.rows[n], back.edges[n]]);
      }
      this.fill(this.outTitle, this.out, node < 0 ? null : "looks at ", out);
      this.fill(this.intoTitle, this.into, node < 0 ? null : "is looked at by ", into);
      this.outTitle.dataset.count = out.length;
      this.intoTitle.dataset.count = into.length;
    }
    fill(title, list, words, edges) {
      const { head } = explorer.model, weight = (e) => (head.weights ? head.weights[e] : 1);
      title.textContent = words === null ? "" : words + explorer.count(edges.length);
      edges.sort((a, b) => weight(b[1]) - weight(a[1]) || a[0] - b[0]);
      list.replaceChildren(...edges.slice(0, kMost).map(([other, e]) => {
        const item = explorer.element("li", { tabIndex: -1 });
        const bar = explorer.element("span", { className: "bar" });
        bar.style.width = Math.max(1, 100 * weight(e)) + "%";
        const name = explorer.element("span", { className: "name", textContent: explorer.nodeName(other, head.unit) });
        item.append(bar, name);
        if (head.weights) item.append(explorer.element("span", { className: "weight", textContent: explorer.number(head.weights[e]) }));
        item.addEventListener("click", () => explorer.set({ token: other * head.unit }));
        return item;
      }));
      if (edges.length > kMost)
        list.append(explorer.element("li", { className: "more", textContent: "and " + explorer.count(edges.length - kMost) + " lighter ones" }));
    }

    // How many queries and keys have how many edges.
    drawHistogram() {
      const { head, degrees } = explorer.model, width = 260, height = 92, colours = explorer.colours();
      if (!head) return;
      const surface = new explorer.CanvasSurface(this.histogram, width, height, Math.min(2, window.devicePixelRatio || 1));
      surface.context.clearRect(0, 0, width, height);
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
