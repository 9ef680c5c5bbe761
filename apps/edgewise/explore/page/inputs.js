// What the model reads, with what a head sees in it: a text with its tokens, ListOps as the tree that it is, or a
// picture. Without a chosen token a colour says how many queries look there; with one, its edges both ways.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const raster = window.edgewiseRaster;
  const kSize = 14, kLine = 24, kPad = 12;

  // A tone per token, and per token the weight of its edge to the chosen one; of squares each token has its group's.
  function tones(graph, degrees, length) {
    const { token } = explorer.state, unit = graph.unit;
    const outgoing = new Float32Array(length), incoming = new Float32Array(length);
    const spread = (list, node, value) => {
      for (let n = node * unit; n < Math.min(length, (node + 1) * unit); ++n) list[n] = Math.max(list[n], value);
    };
    if (token < 0) {
      for (let j = 0; j < graph.keys; ++j) spread(outgoing, j, degrees.byKey[j] / Math.max(1, graph.queries));
      return { outgoing, incoming, isShare: true };
    }
    const node = Math.floor(token / unit), weight = (e) => (graph.weights ? graph.weights[e] : 1);
    if (node < graph.queries)
      for (let e = graph.offsets[node]; e < graph.offsets[node + 1]; ++e) spread(outgoing, graph.columns[e], Math.max(weight(e), 1e-4));
    if (node < graph.keys) {
      const back = explorer.transposedOf(graph);
      for (let n = back.offsets[node]; n < back.offsets[node + 1]; ++n) spread(incoming, back.rows[n], Math.max(weight(back.edges[n]), 1e-4));
    }
    return { outgoing, incoming, isShare: false };
  }

  // From the least to the most that any token that takes part has: heads that look everywhere differ by little.
  function rangeOf(values) {
    const valid = explorer.model.input && explorer.model.input.valid;
    let least = Infinity, most = 0;
    for (let n = 0; n < values.length; ++n) {
      if (valid && !valid[n]) continue;
      least = Math.min(least, values[n]);
      most = Math.max(most, values[n]);
    }
    return { least: Math.min(least, most), most };
  }
  explorer.shareRange = () => rangeOf(tones(explorer.model.head, explorer.model.degrees, explorer.model.length).outgoing);

  class InputView {
    constructor(parent) {
      this.box = explorer.element("div", { className: "scroll", tabIndex: 0 });
      this.spacer = explorer.element("div", { className: "spacer" });
      this.canvas = explorer.element("canvas", { className: "sticky", ariaLabel: "the input" });
      this.box.append(this.canvas, this.spacer);
      parent.append(this.box);
      this.width = this.height = 0;
      this.box.addEventListener("scroll", () => this.draw());
      this.canvas.addEventListener("click", (event) => {
        const box = this.canvas.getBoundingClientRect();
        const token = this.tokenAt(event.clientX - box.left, event.clientY - box.top);
        explorer.set({ token: token === explorer.state.token ? -1 : token, side: "query" });
      });
    }

    show() { this.places = null; this.draw(); }
    resize(width, height) {
      this.width = width;
      this.height = height;
      this.places = null;
      this.draw();
    }
    isPicture() { return explorer.model.pictureWidth > 0 && explorer.model.input && explorer.model.input.tokens; }

    // Where each token stands: [x, y, width], in a page as long as it takes.
    layout() {
      const { length } = explorer.model, isTree = explorer.model.task === "listops";
      const isText = explorer.model.hasNames && !isTree, unit = kSize * 0.602, room = Math.max(80, this.width - 2 * kPad);
      const places = [];
      let x = 0, y = 0, depth = 0, line = 0;
      const newLine = (indent) => { x = indent; ++line; y = line * kLine; };
      for (let n = 0; n < length; ++n) {
        const name = explorer.tokenName(n), width = name.length * unit + (isText ? (name.length > 1 ? 4 : 0) : 8);
        if (isTree && name.startsWith("[")) {
          if (n > 0) newLine(Math.min(depth, 24) * 20);
          ++depth;
        } else if (x + width > room && x > 0) newLine(isTree ? Math.min(depth, 24) * 20 : 0);
        places.push([kPad + x, kPad + y, width]);
        x += width + (isText ? 0 : 4);
        if (isTree && name === "X") depth = Math.max(0, depth - 1);
        if (isText && name === "\\n") newLine(0);
      }
      this.places = places;
      this.long = kPad * 2 + (line + 1) * kLine;
    }

    tokenAt(px, py) {
      if (this.isPicture()) {
        const plan = this.plan();
        for (const panel of plan.panels) {
          const column = Math.floor((px - panel.x) / plan.scale), row = Math.floor((py - panel.y) / plan.scale);
          if (column < 0 || row < 0 || column >= plan.width || row >= plan.rows) continue;
          const place = row * plan.width + column, positions = explorer.model.input.positions;
          const token = positions ? positions.indexOf(place) : place;
          return token < explorer.model.length ? token : -1;
        }
        return -1;
      }
      const y = py + this.box.scrollTop;
      return (this.places || []).findIndex(([x0, y0, width]) => px >= x0 && px < x0 + width && y >= y0 && y < y0 + kLine);
    }

    draw() {
      if (!explorer.model.head || this.width < 1 || this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => {
        this.drawing = false;
        if (!this.places && !this.isPicture()) this.layout();
        this.spacer.style.height = (this.isPicture() ? 0 : Math.max(0, this.long - this.height)) + "px";
        const surface = new explorer.CanvasSurface(this.canvas, this.width, this.height, Math.min(2, window.devicePixelRatio || 1));
        this.canvas.style.width = this.width + "px";
        this.canvas.style.height = this.height + "px";
        surface.context.clearRect(0, 0, this.width, this.height);
        this.paint(surface);
        explorer.painted();
      });
    }
    paint(surface) {
      const graph = explorer.model.head, shown = tones(graph, explorer.model.degrees, explorer.model.length);
      if (this.isPicture()) this.paintPicture(surface, shown); else this.paintTokens(surface, shown);
    }

    toneOf(value, isShare, { least, most }) {
      if (value <= 0) return 0;
      return isShare ? 0.05 + (0.95 * (value - least)) / (most - least || 1) : raster.weightTone(value);
    }
    paintTokens(surface, { outgoing, incoming, isShare }) {
      const colours = explorer.colours(), range = rangeOf(outgoing);
      const top = this.box.scrollTop, { token } = explorer.state, valid = explorer.model.input && explorer.model.input.valid;
      const unit = explorer.model.head.unit, chosen = token < 0 ? -1 : Math.floor(token / unit);
      if (!this.places) this.layout();
      for (let n = 0; n < this.places.length; ++n) {
        const [x, pageY, width] = this.places[n], y = pageY - top;
        if (y < -kLine || y > this.height) continue;
        const tone = this.toneOf(outgoing[n], isShare, range), name = explorer.tokenName(n);
        if (tone > 0) surface.rect(x, y, width, kLine - 4, explorer.tone(tone));
        if (incoming[n] > 0) surface.rect(x, y + kLine - 4, width, 3, colours.incoming);
        if (Math.floor(n / unit) === chosen) surface.rect(x, y - 1, Math.max(width, 6), kLine - 2, null, colours.chosen);
        const ink = tone > 0 ? (explorer.isDarkTone(tone) ? "#ffffff" : "#10151c") : valid && !valid[n] ? colours.line : colours.ink;
        surface.text(x + (width - name.length * kSize * 0.602) / 2, y + 15, name, { size: kSize, mono: true, colour: ink });
      }
    }

    // Panels side by side: the picture, where edges lead, and, for a chosen pixel, where they come from.
    plan() {
      const width = explorer.model.pictureWidth, positions = explorer.model.input.positions;
      const last = positions ? positions.reduce((a, b) => Math.max(a, b), 0) + 1 : explorer.model.length;
      const rows = Math.max(width, Math.ceil(last / width)), count = explorer.state.token < 0 ? 2 : 3, gap = 24, top = 30;
      const scaleOf = (across) => Math.min((this.width - gap * (across + 1)) / across / width,
                                           (this.height - gap) / Math.ceil(count / across) / rows - (top + 8) / rows);
      const across = [1, 2, 3].reduce((best, n) => (scaleOf(n) > scaleOf(best) ? n : best)), scale = Math.max(1, scaleOf(across));
      const panels = Array.from({ length: count }, (_, n) => ({
        x: gap + (n % across) * (width * scale + gap), y: top + Math.floor(n / across) * (rows * scale + top + 8) }));
      return { width, rows, scale, panels };
    }
    paintPicture(surface, { outgoing, incoming, isShare }) {
      const { width, rows, scale, panels } = this.plan(), colours = explorer.colours(), { tokens, positions, valid } = explorer.model.input;
      const unit = explorer.model.head.unit, token = explorer.state.token;
      const isDark = explorer.theme() === "dark";
      const pale = (grey) => {  // the picture, faint, under what a head sees in it
        const level = Math.round(isDark ? 20 + 0.3 * Math.min(255, grey) : 255 - 0.28 * Math.min(255, grey));
        return `rgb(${level},${level},${level})`;
      };
      const place = (n) => (positions ? positions[n] : n);
      const titles = isShare ? ["picture", "share of queries with an edge to a pixel"]
        : ["picture and chosen pixel", "where it looks: weight of its edges", "who looks at it"];
      panels.forEach((panel, p) => {
        surface.text(panel.x, panel.y - 10, titles[p], { colour: colours.soft, size: 12 });
        surface.rect(panel.x, panel.y, width * scale, rows * scale, p === 0 ? "#000000" : colours.faint);
        const values = p === 1 ? outgoing : incoming, range = rangeOf(values);
        for (let n = 0; n < explorer.model.length; ++n) {
          const at = place(n), x = panel.x + (at % width) * scale, y = panel.y + Math.floor(at / width) * scale;
          if (p === 0) {
            const grey = Math.min(255, Math.max(0, tokens[n]));
            surface.rect(x, y, scale, scale, `rgb(${grey},${grey},${grey})`);
          } else if (!valid || valid[n]) {
            const tone = this.toneOf(values[n], isShare, range);
            surface.rect(x, y, scale, scale, tone > 0 ? explorer.tone(tone) : pale(tokens[n]));
          }
        }
        surface.rect(panel.x - 1, panel.y - 1, width * scale + 2, rows * scale + 2, null, colours.line);
        if (token >= 0)
          for (let n = Math.floor(token / unit) * unit; n < Math.min((Math.floor(token / unit) + 1) * unit, explorer.model.length); ++n)
            surface.rect(panel.x + (place(n) % width) * scale - 1, panel.y + Math.floor(place(n) / width) * scale - 1, scale + 2, scale + 2, null, colours.chosen);
      });
    }
  }

  explorer.InputView = InputView;
})();
