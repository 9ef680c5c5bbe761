// One head as a matrix: queries downwards, keys to the right, a cell for every edge or square. Zoom with the
// wheel, pan by dragging, click a cell to choose its query (with Shift: its key).
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const raster = window.edgewiseRaster;
  const kLeft = 76, kTop = 58, kMargin = 10, kMostCells = 40000, kDeepest = 64;

  class MatrixView {
    constructor(parent, model) {
      this.model = model;
      this.canvas = explorer.element("canvas", { className: "matrix", tabIndex: 0, ariaLabel: "edges of the head, queries by keys" });
      this.tip = explorer.element("div", { className: "tip", hidden: true });
      parent.append(this.canvas, this.tip);
      this.width = this.height = 0;
      this.graph = null;
      this.picture = null;  // the pixels that came last: { canvas, view }
      this.asked = this.answered = 0;
      this.frames = 0;
      this.hover = null;
      try {
        this.worker = explorer.data.worker("raster.js");
        this.worker.onmessage = (event) => this.take(event.data);
        this.worker.onerror = () => { this.worker = null; this.ask(); };
      } catch (error) {
        this.worker = null;  // drawn on the page itself
      }
      this.listen();
    }

    show() {
      const graph = (this.graph = this.model.head);
      this.degrees = this.model.degrees;
      this.picture = null;
      if (this.worker)
        this.worker.postMessage({ graph: { queries: graph.queries, keys: graph.keys, offsets: graph.offsets,
                                           columns: graph.columns, weights: graph.weights } });
      this.ask();
    }

    resize(width, height) {
      this.width = width;
      this.height = height;
      this.ask();
    }

    // The window onto the graph: node (x, y) at the upper left corner, so many pixels a node.
    area() { return { width: Math.max(1, this.width - kLeft - kMargin), height: Math.max(1, this.height - kTop - kMargin) }; }
    fit() {
      const { width, height } = this.area();
      const scale = Math.min(width / this.graph.keys, height / this.graph.queries, kDeepest);
      return [0, 0, scale];
    }
    zoom() { return explorer.state.zoom || this.fit(); }
    zoomAt(px, py, factor) {
      const [x, y, scale] = this.zoom(), smallest = this.fit()[2];
      const next = Math.min(kDeepest, Math.max(smallest, scale * factor));
      if (next <= smallest) return explorer.set({ zoom: null });
      explorer.set({ zoom: this.kept([x + px / scale - px / next, y + py / scale - py / next, next]) });
    }
    pan(dx, dy) {
      const [x, y, scale] = this.zoom();
      explorer.set({ zoom: this.kept([x + dx / scale, y + dy / scale, scale]) });
    }
    kept([x, y, scale]) {  // some of the graph stays in the window
      const { width, height } = this.area();
      const within = (at, nodes, room) => Math.max(Math.min(0, nodes - room), Math.min(at, Math.max(0, nodes - room)));
      return [within(x, this.graph.keys, width / scale), within(y, this.graph.queries, height / scale), scale];
    }

    ask() {
      if (!this.graph || this.width < 1) return;
      const { width, height } = this.area(), [x, y, scale] = this.zoom(), ratio = this.ratio();
      const view = { x, y, scale: scale * ratio, width: Math.round(width * ratio), height: Math.round(height * ratio),
                     mode: explorer.state.colour, palette: explorer.palette(), empty: explorer.emptyWord() };
      this.draw();
      if (!this.worker) return this.take({ id: ++this.asked, view, pixels: raster.pixels(this.graph, this.degrees, view) });
      if (this.asked > this.answered) { this.again = true; return; }  // one at a time: a queue would lag behind
      this.again = false;
      this.worker.postMessage({ id: ++this.asked, view });
    }
    take(message) {
      this.answered = message.id;
      const canvas = document.createElement("canvas");
      canvas.width = message.view.width;
      canvas.height = message.view.height;
      canvas.getContext("2d").putImageData(new ImageData(message.pixels, canvas.width, canvas.height), 0, 0);
      this.picture = { canvas, view: message.view };
      this.draw();
      ++this.frames;
      this.canvas.dataset.frames = this.frames;
      if (this.again) this.ask();
    }
    ratio() { return Math.min(2, window.devicePixelRatio || 1); }

    draw() {
      if (!this.graph || this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => {
        this.drawing = false;
        const surface = new explorer.CanvasSurface(this.canvas, this.width, this.height, this.ratio());
        surface.context.clearRect(0, 0, this.width, this.height);
        this.paint(surface, false);
        if (this.picture) explorer.painted();
      });
    }

    paint(surface, asFile = true) {
      const colours = explorer.colours(), { width, height } = this.area(), [x, y, scale] = this.zoom();
      const right = Math.min(width, (this.graph.keys - x) * scale), bottom = Math.min(height, (this.graph.queries - y) * scale);
      surface.clip(kLeft, kTop, width, height);
      if (!asFile || !this.paintCells(surface, x, y, scale)) this.paintPicture(surface, x, y, scale);
      this.paintRight(surface, x, y, scale);
      this.paintChosen(surface, x, y, scale);
      surface.unclip();
      surface.rect(kLeft - 1, kTop - 1, Math.max(0, right) + 2, Math.max(0, bottom) + 2, null, colours.line);
      this.paintAxes(surface, x, y, scale);
      this.paintLegend(surface);
    }
    paintPicture(surface, x, y, scale) {
      if (!this.picture) return;
      const { canvas, view } = this.picture, ratio = this.ratio(), was = view.scale / ratio;
      surface.image(canvas, kLeft + (view.x - x) * scale, kTop + (view.y - y) * scale,
                    (canvas.width / ratio) * (scale / was), (canvas.height / ratio) * (scale / was));
    }
    // Every edge as a rectangle; false when there are too many for a file.
    paintCells(surface, x, y, scale) {
      const graph = this.graph, { width, height } = this.area(), cells = [];
      const lastRow = Math.min(graph.queries, Math.ceil(y + height / scale));
      const tone = raster.toneOf(graph, this.degrees, explorer.state.colour);
      for (let i = Math.max(0, Math.floor(y)); i < lastRow; ++i) {
        for (let e = raster.firstAt(graph.columns, graph.offsets[i], graph.offsets[i + 1], Math.floor(x)); e < graph.offsets[i + 1]; ++e) {
          if (graph.columns[e] > x + width / scale) break;
          if (cells.push([graph.columns[e], i, tone(e, i)]) > kMostCells) return false;
        }
      }
      const size = Math.max(0.5, scale >= 4 ? scale - 1 : scale);
      for (const [j, i, shade] of cells)
        surface.rect(kLeft + (j - x) * scale, kTop + (i - y) * scale, size, size, explorer.tone(shade));
      return true;
    }
    // Right edges of a task that knows them, as frames.
    paintRight(surface, x, y, scale) {
      const right = this.model.isAcross() ? null : this.model.right;
      if (!right || this.graph.unit !== 1 || scale < 3) return;
      const { width, height } = this.area(), colour = explorer.colours().right;
      for (let i = Math.max(0, Math.floor(y)); i < Math.min(right.queries, y + height / scale); ++i)
        for (let e = right.offsets[i]; e < right.offsets[i + 1]; ++e) {
          const j = right.columns[e];
          if (j + 1 >= x && j <= x + width / scale)
            surface.rect(kLeft + (j - x) * scale, kTop + (i - y) * scale, scale, scale, null, colour);
        }
    }
    paintChosen(surface, x, y, scale) {
      const { side } = explorer.state, colours = explorer.colours(), chosen = this.model.chosen();
      const thick = Math.max(1, scale), { width, height } = this.area();
      const frame = (ofQuery, colour, node = ofQuery ? chosen.query : chosen.key) => node < 0 ? null : ofQuery
        ? surface.rect(kLeft, kTop + (node - y) * scale - 1, Math.min(width, (this.graph.keys - x) * scale), thick + 2, null, colour)
        : surface.rect(kLeft + (node - x) * scale - 1, kTop, thick + 2, Math.min(height, (this.graph.queries - y) * scale), null, colour);
      frame(side !== "query", colours.incoming);
      frame(side === "query", colours.chosen);
    }

    paintAxes(surface, x, y, scale) {
      const colours = explorer.colours(), { width, height } = this.area(), unit = this.graph.unit;
      const [across, down] = this.model.isAcross() ? ["keys: source", "queries: translation"] : ["keys", "queries"], groups = unit > 1 ? ", in groups of 16" : "";
      const wide = this.width > 520;
      surface.text(wide ? 4 + 7 * (down + groups).length + 20 : kLeft, 14, across + groups, { colour: colours.soft, size: 12 });
      if (wide) surface.text(4, 14, down + groups, { colour: colours.soft, size: 12 });
      const named = scale >= 13 && unit === 1 && this.model.hasNames, { query, key } = this.model.sides;
      const step = named ? 1 : niceStep(54 / (scale * unit)) / unit;
      const each = (nodes, from, room, use) => {
        const every = named ? 1 : Math.max(1, Math.round(step), Math.ceil(34 / scale / (step >= 1 ? 8 : 1)));
        for (let n = Math.ceil(from / every - 1e-9) * every; n < nodes && (n - from) * scale < room; n += every) if (n >= 0) use(n);
      };
      const label = (n, most, text) => (named ? this.model.label(n, text).slice(0, most) : String(n * unit));
      each(this.graph.keys, x, width, (n) => {
        const at = kLeft + (n + 0.5 - x) * scale;
        if (at < kLeft) return;
        surface.line([[at, kTop - 5], [at, kTop - 1]], colours.soft);
        surface.text(at, kTop - 9, label(n, scale >= 40 ? 6 : 4, key), { colour: colours.soft, size: 11, anchor: "middle", mono: named });
      });
      each(this.graph.queries, y, height, (n) => {
        const at = kTop + (n + 0.5 - y) * scale;
        if (at < kTop) return;
        surface.line([[kLeft - 5, at], [kLeft - 1, at]], colours.soft);
        surface.text(kLeft - 9, at + 4, label(n, 8, query), { colour: colours.soft, size: 11, anchor: "end", mono: named });
      });
    }

    paintLegend(surface) {
      const colours = explorer.colours(), wide = 120, x = Math.max(kLeft + 60, this.width - kMargin - wide - 56), mode = explorer.state.colour;
      const ends = { weight: this.graph.weights ? ["0.0001", "weight 1"] : null, edges: ["few", "all pairs"],
                     query: ["1", this.degrees.mostOfQuery + " edges"], key: ["1", this.degrees.mostOfKey + " edges"] }[mode];
      if (!ends) return;
      const y = this.width > 520 ? 6 : 20;  // below the names of the axes where they leave no room
      for (let n = 0; n < wide; n += 2) surface.rect(x + n, y, 2, 9, explorer.tone(0.1 + (0.9 * n) / wide));
      surface.text(x - 5, y + 8, ends[0], { colour: colours.soft, size: 11, anchor: "end" });
      surface.text(x + wide + 5, y + 8, ends[1], { colour: colours.soft, size: 11 });
    }

    // The cell under a point of the canvas; null beside the matrix.
    cellAt(px, py) {
      if (!this.graph) return null;
      const [x, y, scale] = this.zoom();
      const j = Math.floor(x + (px - kLeft) / scale), i = Math.floor(y + (py - kTop) / scale);
      const inside = px >= kLeft && py >= kTop && j >= 0 && i >= 0 && j < this.graph.keys && i < this.graph.queries;
      return inside ? { i, j } : null;
    }
    // The nearest edge within a few pixels, so that single edges can be hit when they are small.
    edgeNear(px, py) {
      const cell = this.cellAt(px, py);
      if (!cell) return null;
      const [, , scale] = this.zoom(), reach = Math.min(40, Math.ceil(3 / scale) - 1);
      let best = null;
      for (let i = Math.max(0, cell.i - reach); i <= Math.min(this.graph.queries - 1, cell.i + reach); ++i) {
        const end = this.graph.offsets[i + 1];
        for (let e = raster.firstAt(this.graph.columns, this.graph.offsets[i], end, cell.j - reach); e < end; ++e) {
          const j = this.graph.columns[e];
          if (j > cell.j + reach) break;
          const distance = Math.max(Math.abs(i - cell.i), Math.abs(j - cell.j));
          if (!best || distance < best.distance) best = { i, j, e, distance };
        }
      }
      return best;
    }

    listen() {
      const at = (event) => {
        const box = this.canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      this.canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        const [px, py] = at(event);
        this.zoomAt(px - kLeft, py - kTop, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)));
      }, { passive: false });
      let drag = null;
      this.canvas.addEventListener("pointerdown", (event) => {
        drag = { from: at(event), last: at(event), moved: false };
        this.canvas.setPointerCapture(event.pointerId);
      });
      this.canvas.addEventListener("pointermove", (event) => {
        const [px, py] = at(event);
        if (!drag) return this.point(px, py);
        if (Math.hypot(px - drag.from[0], py - drag.from[1]) > 4) drag.moved = true;
        if (drag.moved) this.pan(drag.last[0] - px, drag.last[1] - py);
        drag.last = [px, py];
        this.tip.hidden = true;
      });
      this.canvas.addEventListener("pointerup", (event) => {
        if (drag && !drag.moved) this.choose(...at(event), event.shiftKey);
        drag = null;
      });
      this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      this.canvas.addEventListener("dblclick", () => explorer.set({ zoom: null }));
    }
    choose(px, py, asKey) {
      const cell = this.edgeNear(px, py) || this.cellAt(px, py);
      if (cell) explorer.set({ token: (asKey ? cell.j : cell.i) * this.graph.unit, side: asKey ? "key" : "query" });
    }
    point(px, py) {
      const edge = this.edgeNear(px, py);
      this.tip.hidden = !edge;
      if (!edge) return;
      const weight = this.graph.weights ? "\nweight " + explorer.number(this.graph.weights[edge.e]) : "";
      this.tip.textContent = this.model.nodeName(edge.i, "query") + " \u2192 " + this.model.nodeName(edge.j, "key") + weight;
      this.tip.style.left = Math.min(px + 14, this.width - 200) + "px";
      this.tip.style.top = py + 16 + "px";
    }
  }

  // 1, 2 or 5 times a power of ten, at least `least`.
  function niceStep(least) {
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) || 10 * power;
  }

  explorer.MatrixView = MatrixView;
})();
