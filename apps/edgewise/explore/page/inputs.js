// What the model reads, with what a head sees in it: a text with its tokens, ListOps as the tree that it is, two texts of
// a translation, or a picture. Without a chosen token a colour says how many queries look there; with one, its edges
// both ways.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const raster = window.edgewiseRaster;
  const kSize = 14, kLine = 24, kPad = 12, kIndent = 20, kDeepest = 24, kGap = 34;

  // A tone per key token, and per query token the weight of its edge to the chosen key; of squares each token has its
  // group's.
  function tones(model) {
    const { head: graph, degrees, sides } = model, unit = graph.unit, { query, key } = model.chosen();
    // Nodes beyond the tokens (a memory) have no place in the text.
    const outgoing = new Float32Array(sides.key.length), incoming = new Float32Array(sides.query.length);
    const spread = (list, node, value) => {
      for (let n = node * unit; n < Math.min(list.length, (node + 1) * unit); ++n) list[n] = Math.max(list[n], value);
    };
    const isShare = query < 0 && key < 0, weight = (e) => Math.max(graph.weights ? graph.weights[e] : 1, 1e-4);
    if (isShare) for (let j = 0; j < graph.keys; ++j) spread(outgoing, j, degrees.byKey[j] / Math.max(1, graph.queries));
    for (const [j, e] of model.edgesOf(query)) spread(outgoing, j, weight(e));
    for (const [i, e] of model.edgesInto(key)) spread(incoming, i, weight(e));
    return { outgoing, incoming, isShare };
  }

  // From the least to the most that any token that takes part has: heads that look everywhere differ by little.
  function rangeOf(values, valid) {
    let least = Infinity, most = 0;
    for (let n = 0; n < values.length; ++n) {
      if (valid && !valid[n]) continue;
      least = Math.min(least, values[n]);
      most = Math.max(most, values[n]);
    }
    return { least: Math.min(least, most), most };
  }
  explorer.shareRange = (model) => rangeOf(tones(model).outgoing, model.sides.key.valid);

  class InputView {
    constructor(parent, model) {
      this.model = model;
      this.box = explorer.element("div", { className: "scroll", tabIndex: 0 });
      this.spacer = explorer.element("div", { className: "spacer" });
      this.canvas = explorer.element("canvas", { className: "sticky", ariaLabel: "the input" });
      this.box.append(this.canvas, this.spacer);
      parent.append(this.box);
      this.width = this.height = 0;
      this.box.addEventListener("scroll", () => this.draw());
      this.canvas.addEventListener("click", (event) => {
        const box = this.canvas.getBoundingClientRect(), { token, side } = explorer.state;
        const found = this.tokenAt(event.clientX - box.left, event.clientY - box.top);
        const isSame = found.token === token && (found.side === side || !this.model.isAcross());
        explorer.set({ token: isSame ? -1 : found.token, side: found.side });
      });
    }

    show() { this.places = null; this.draw(); }
    resize(width, height) {
      this.width = width;
      this.height = height;
      this.places = null;
      this.draw();
    }
    isPicture() { return this.model.pictureWidth > 0 && this.model.sides.query && this.model.sides.query.tokens; }
    fileHeight() { return this.isPicture() ? this.height : Math.max(this.long || 0, 60); }

    // The texts one below the other: of attention across two, keys above queries.
    blocks() {
      const { query, key } = this.model.sides;
      if (!this.model.isAcross()) return [{ text: query, side: "query", title: "" }];
      return [{ text: key, side: "key", title: "source: what is looked at" }, { text: query, side: "query", title: "translation: what looks" }];
    }

    // Where each token stands: [x, y, width], in a page as long as it takes.
    layout() {
      const isTree = this.model.task === "listops", room = Math.max(80, this.width - 2 * kPad);
      const isText = this.model.hasNames && !isTree, unit = kSize * 0.602;
      let top = kPad;
      this.places = this.blocks().map((block) => {
        const { text, title } = block, places = [];
        if (title) top += kLine;
        let x = 0, y = top, depth = 0, wasEnd = false;
        const newLine = (indent) => { x = indent; y += kLine; };
        const indent = () => Math.min(depth, kDeepest) * kIndent;
        for (let n = 0; n < text.length; ++n) {
          const name = this.model.tokenName(n, text), width = Math.max(4, name.length * unit) + (isText ? (name.length > 1 ? 4 : 0) : 8);
          const isEnd = isTree && name === "X", isOpening = isTree && name.startsWith("[");
          // Also what stands behind a part that is closed has a line of its own: it belongs to the operator above.
          if (isOpening || (isTree && wasEnd && !isEnd)) {
            if (n > 0) newLine(indent());
            depth += isOpening ? 1 : 0;
          } else if (x + width > room && x > 0) newLine(isTree ? indent() : 0);
          places.push([kPad + x, y, width]);
          x += width + (isText ? 0 : 4);
          if (isEnd) depth = Math.max(0, depth - 1);
          wasEnd = isEnd;
          if (isText && name === "\\n") newLine(0);
        }
        top = y + kLine + kGap;
        return Object.assign(block, { places, titleAt: places.length ? places[0][1] - 10 : top });
      });
      this.long = top - kGap + kPad;
    }

    tokenAt(px, py) {
      const none = { token: -1, side: "query" };
      if (this.isPicture()) {
        const plan = this.plan(), { positions, length } = this.model.sides.query;
        for (const panel of plan.panels) {
          const column = Math.floor((px - panel.x) / plan.scale), row = Math.floor((py - panel.y) / plan.scale);
          if (column < 0 || row < 0 || column >= plan.width || row >= plan.rows) continue;
          const place = row * plan.width + column, token = positions ? positions.indexOf(place) : place;
          return { token: token < length ? token : -1, side: "query" };
        }
        return none;
      }
      const y = py + this.box.scrollTop;
      for (const { places, side } of this.places || []) {
        const token = places.findIndex(([x0, y0, width]) => px >= x0 && px < x0 + width && y >= y0 && y < y0 + kLine);
        if (token >= 0) return { token, side };
      }
      return none;
    }

    draw() {
      if (!this.model.head || this.width < 1 || this.drawing) return;
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
    // A file has all of a text, the page the part that it is scrolled to.
    paint(surface, asFile = false) {
      const shown = tones(this.model);
      if (this.isPicture()) return this.paintPicture(surface, shown);
      if (!this.places) this.layout();
      const top = asFile ? 0 : this.box.scrollTop, bottom = top + (asFile ? this.long : this.height), isAcross = this.model.isAcross();
      for (const block of this.places) {
        if (block.title) surface.text(kPad, block.titleAt - top, block.title, { size: 12, colour: explorer.colours().soft });
        if (!isAcross && this.model.task === "listops") this.paintTree(surface, block, top, bottom);
        const under = isAcross ? null : shown.incoming;
        this.paintTokens(surface, block, top, bottom, isAcross && block.side === "query" ? shown.incoming : shown.outgoing, under, shown.isShare);
      }
    }

    toneOf(value, isShare, { least, most }) {
      if (value <= 0) return 0;
      return isShare ? 0.05 + (0.95 * (value - least)) / (most - least || 1) : raster.weightTone(value);
    }
    // fill: a tone per token; under: what is underlined.
    paintTokens(surface, { text, places, side }, top, bottom, fill, under, isShare) {
      const colours = explorer.colours(), range = rangeOf(fill, text.valid);
      const unit = this.model.head.unit, both = this.model.chosen(), chosen = this.model.isAcross() ? both[side] : Math.max(both.query, both.key);
      for (let n = 0; n < places.length; ++n) {
        const [x, pageY, width] = places[n], y = pageY - top;
        if (pageY < top - kLine || pageY > bottom) continue;
        const tone = this.toneOf(fill[n], isShare, range), name = this.model.tokenName(n, text);
        if (tone > 0) surface.rect(x, y, width, kLine - 4, explorer.tone(tone));
        if (under && under[n] > 0) surface.rect(x, y + kLine - 4, width, 3, colours.incoming);
        if (Math.floor(n / unit) === chosen) surface.rect(x, y - 1, Math.max(width, 6), kLine - 2, null, colours.chosen);
        const ink = tone > 0 ? (explorer.isDarkTone(tone) ? "#ffffff" : "#10151c") : text.valid && !text.valid[n] ? colours.line : colours.ink;
        surface.text(x + (width - name.length * kSize * 0.602) / 2, y + 15, name, { size: kSize, mono: true, colour: ink });
      }
    }
    // From every operator a line down to those below it.
    paintTree(surface, { places }, top, bottom) {
      const parents = this.model.given && this.model.given.parents, { line } = explorer.colours();
      if (!parents) return;
      for (let n = 0; n < places.length; ++n) {
        const parent = parents[n];
        if (parent < 0 || places[n][1] === places[parent][1] || (n > 0 && places[n][1] === places[n - 1][1])) continue;
        const x = places[parent][0] + 7, y = places[n][1] + 10 - top, from = places[parent][1] + kLine - 3 - top;
        if (y < -kLine || from > bottom - top) continue;
        surface.line([[x, from], [x, y], [places[n][0] - 3, y]], line, 1.5);
      }
    }

    // Panels side by side: the picture, where edges lead, and, for a chosen pixel, where they come from.
    plan() {
      const width = this.model.pictureWidth, { positions, length } = this.model.sides.query;
      const last = positions ? positions.reduce((a, b) => Math.max(a, b), 0) + 1 : length;
      const rows = Math.max(width, Math.ceil(last / width)), count = this.model.chosen().query < 0 ? 2 : 3, gap = 24, top = 30;
      const scaleOf = (across) => Math.min((this.width - gap * (across + 1)) / across / width,
                                           (this.height - gap) / Math.ceil(count / across) / rows - (top + 8) / rows);
      const across = [1, 2, 3].reduce((best, n) => (scaleOf(n) > scaleOf(best) ? n : best)), scale = Math.max(1, scaleOf(across));
      const panels = Array.from({ length: count }, (_, n) => ({
        x: gap + (n % across) * (width * scale + gap), y: top + Math.floor(n / across) * (rows * scale + top + 8) }));
      return { width, rows, scale, panels };
    }
    paintPicture(surface, { outgoing, incoming, isShare }) {
      const { width, rows, scale, panels } = this.plan(), colours = explorer.colours(), { tokens, positions, valid, length } = this.model.sides.query;
      const unit = this.model.head.unit, node = this.model.chosen().query;
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
        const values = p === 1 ? outgoing : incoming, range = rangeOf(values, valid);
        for (let n = 0; n < length; ++n) {
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
        if (node >= 0)
          for (let n = node * unit; n < Math.min((node + 1) * unit, length); ++n)
            surface.rect(panel.x + (place(n) % width) * scale - 1, panel.y + Math.floor(place(n) / width) * scale - 1, scale + 2, scale + 2, null, colours.chosen);
      });
    }
  }

  explorer.InputView = InputView;
})();
