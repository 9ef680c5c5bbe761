// One head as nodes and links. Where the input has edges of its own (a graph's, a tree's) they place the nodes, and the
// head's edges are told apart from them; else the head's edges do, or a ring. Attention across two texts has one above
// the other.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const raster = window.edgewiseRaster;
  const kMargin = 30, kTop = 52, kMostNodes = 20000, kMostLines = 40000, kMostSprings = 150000, kMostClasses = 12, kReach = 12;
  const words = { given: "by the input's edges", head: "by this head's edges", ring: "in a ring", rows: "one text above the other" };

  // Layouts come from one Worker for both sides of the page; the same question is asked once.
  const asked = new WeakMap(), waiting = new Map();
  let worker, number = 0;
  function places(owner, question) {
    if (!asked.has(owner)) asked.set(owner, new Map());
    const known = asked.get(owner);
    if (!known.has(question.kind)) known.set(question.kind, layoutOf(question));
    return known.get(question.kind);
  }
  function layoutOf(question) {
    if (worker === undefined) {
      try {
        worker = explorer.data.worker("layout.js");
        worker.onmessage = (event) => { waiting.get(event.data.id).done(event.data.places); waiting.delete(event.data.id); };
        worker.onerror = () => {  // computed on the page itself
          worker = null;
          for (const each of waiting.values()) each.done(window.edgewiseLayout.places(each.question));
          waiting.clear();
        };
      } catch (error) { worker = null; }
    }
    if (!worker) return Promise.resolve(window.edgewiseLayout.places(question));
    return new Promise((done) => {
      waiting.set(++number, { done, question });
      worker.postMessage(Object.assign({ id: number }, question));
    });
  }

  class GraphView {
    constructor(parent, model) {
      this.model = model;
      this.canvas = explorer.element("canvas", { className: "graph", tabIndex: 0, ariaLabel: "the head as nodes and links" });
      this.tip = explorer.element("div", { className: "tip", hidden: true });
      parent.append(this.canvas, this.tip);
      this.width = this.height = 0;
      this.drawn = null;  // { nodes, kind, places, sets } of what was shown last
      this.listen();
    }
    resize(width, height) {
      this.width = width;
      this.height = height;
      if (this.isStale) this.show(); else this.draw();
    }
    // Work only while it is looked at: a layout may take a second.
    show() {
      this.isStale = explorer.state.view !== "graph";
      if (this.isStale || !this.model.head) return;
      const graph = this.model.head, isAcross = this.model.isAcross();
      const nodes = isAcross ? graph.queries + graph.keys : Math.max(graph.queries, graph.keys);
      this.drawn = null;
      this.note = nodes > kMostNodes ? "This graph has " + explorer.count(nodes) + " nodes, too many to draw apart. The matrix shows it." : "placing the nodes \u2026";
      this.draw();
      if (nodes > kMostNodes) return;
      const sets = this.sets(isAcross ? graph.queries : 0), kind = this.kind(), owner = kind === "given" ? this.model.given : graph;
      const question = { nodes, kind: { given: "forces", head: "forces", ring: "ring", rows: "ring" }[kind], edges: null, parents: null };
      if (kind === "given" && this.model.given.parents && graph.unit === 1) Object.assign(question, { kind: "tree", parents: this.model.given.parents });
      else if (question.kind === "forces") question.edges = springs(kind === "given" ? sets.given.concat(sets.both) : sets.all);
      const found = kind === "rows" ? Promise.resolve(rows(graph.queries, graph.keys)) : places(owner, question);
      const asked = performance.now();
      this.settled = found.then((where) => {
        this.placedIn = performance.now() - asked;  // milliseconds
        if (this.model.head !== graph || this.kind() !== kind) return;
        this.drawn = { nodes, kind, isTree: question.kind === "tree", places: where, sets, first: isAcross ? graph.queries : 0 };
        Object.assign(this.canvas.dataset, { nodes, kind, links: sets.all.length, given: sets.given.length, both: sets.both.length });
        this.draw();
      });
    }
    kind() {
      const { arrange } = explorer.state, canGiven = this.model.given !== null && !this.model.isAcross();
      if (this.model.isAcross()) return "rows";
      if (arrange === "ring" || arrange === "head") return arrange;
      return canGiven ? "given" : "head";
    }

    // Links as [query node, key node, edge]: of the head, of the input alone, and of both. A node's edge to itself is no link.
    sets(firstKey) {
      const graph = this.model.head, { given, right } = this.model, unit = graph.unit, all = [], both = [], ofGiven = [], missed = [];
      const known = firstKey ? null : given, wanted = firstKey || unit > 1 ? null : right;
      const groups = (list) => {
        const found = new Set();
        for (let i = 0; i < list.queries; ++i)
          for (let e = list.offsets[i]; e < list.offsets[i + 1]; ++e) {
            const a = Math.floor(i / unit), b = Math.floor(list.columns[e] / unit);
            if (a !== b) found.add(a * graph.keys + b);
          }
        return found;
      };
      const inInput = known ? groups(known) : new Set(), isRight = wanted ? groups(wanted) : new Set();
      const unseen = new Set(isRight), alone = new Set(inInput);
      for (let i = 0; i < graph.queries; ++i)
        for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; ++e) {
          const j = graph.columns[e], key = i * graph.keys + j;
          if (!firstKey && i === j) continue;
          const link = [i, firstKey + j, e];
          all.push(link);
          if (inInput.has(key) || isRight.has(key)) both.push(link);
          alone.delete(key);
          unseen.delete(key);
        }
      for (const key of alone) ofGiven.push([Math.floor(key / graph.keys), key % graph.keys, -1]);
      for (const key of unseen) missed.push([Math.floor(key / graph.keys), key % graph.keys, -1]);
      return { all, both, given: ofGiven, missed, hasGiven: known !== null, hasRight: wanted !== null };
    }

    // From places in the square to points of the canvas.
    plan() {
      const { width, height } = this, isWide = this.drawn && (this.drawn.isTree || this.drawn.kind === "rows");
      const room = [Math.max(10, width - 2 * kMargin), Math.max(10, height - kTop - kMargin)], least = Math.min(...room);
      const size = isWide ? room : [least, least], [x, y, scale] = explorer.state.place || [0, 0, 1];
      const corner = [kMargin + (room[0] - size[0]) / 2, kTop + (room[1] - size[1]) / 2];
      return { size, corner, x, y, scale, at: (n) => [corner[0] + (this.drawn.places[2 * n] - x) * size[0] * scale, corner[1] + (this.drawn.places[2 * n + 1] - y) * size[1] * scale] };
    }
    zoomAt(px, py, factor) {
      const { size, corner, x, y, scale } = this.plan(), next = Math.min(200, Math.max(1, scale * factor));
      if (next <= 1) return explorer.set({ place: null });
      const fixed = (at, n, from) => from + ((at - corner[n]) / size[n]) * (1 / scale - 1 / next);
      explorer.set({ place: [fixed(px, 0, x), fixed(py, 1, y), next] });
    }
    pan(dx, dy) {
      const { size, x, y, scale } = this.plan();
      explorer.set({ place: [x + dx / size[0] / scale, y + dy / size[1] / scale, scale] });
    }

    draw() {
      if (this.width < 1 || this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => {
        this.drawing = false;
        const surface = new explorer.CanvasSurface(this.canvas, this.width, this.height, Math.min(2, window.devicePixelRatio || 1));
        surface.context.clearRect(0, 0, this.width, this.height);
        this.paint(surface);
        if (this.drawn) explorer.painted();
      });
    }
    paint(surface) {
      const colours = explorer.colours();
      if (!this.drawn) {
        if (this.note) surface.text(this.width / 2, this.height / 2, this.note, { colour: colours.soft, size: 14, anchor: "middle" });
        return;
      }
      const plan = this.plan(), isChosen = this.paintLinks(surface, plan, colours);
      this.paintNodes(surface, plan, colours, isChosen);
      this.paintLegend(surface, colours);
    }

    // What each kind of link looks like, faint ones first.
    styles(colours) {
      const { sets } = this.drawn, list = [];
      const faint = (links) => Math.min(0.9, Math.max(0.06, 10 / Math.sqrt(links.length + 1)));  // many lie over each other
      if (sets.hasGiven) {
        const tree = this.model.given.parents ? "tree" : "input graph", loose = new Set(sets.both);
        const learned = sets.all.filter((link) => !loose.has(link));
        list.push({ links: sets.given, colour: colours.line, width: 1, alpha: 1, says: "in the " + tree + " alone" });
        list.push({ links: sets.both, colour: colours.soft, width: sets.both.length > 2000 ? 1 : 1.8, alpha: Math.max(0.5, faint(sets.both)), says: "both" });
        list.push({ links: learned, colour: colours.incoming, width: 1, alpha: Math.max(0.25, faint(learned)), says: "chosen by the head" });
      } else if (sets.hasRight) {
        const hit = new Set(sets.both);
        const others = sets.all.filter((link) => !hit.has(link));
        list.push({ links: others, colour: colours.soft, width: 1, alpha: faint(others), says: "chosen" });
        list.push({ links: sets.missed, colour: colours.incoming, width: 1.4, alpha: 0.9, says: "right, not chosen" });
        list.push({ links: sets.both, colour: colours.right, width: 1.8, alpha: 0.9, says: "right and chosen" });
      } else {
        const weights = this.model.head.weights, bins = [[], [], [], []];
        for (const link of sets.all) bins[weights ? Math.min(3, Math.floor(raster.weightTone(weights[link[2]]) * 4)) : 2].push(link);
        bins.forEach((links, n) => list.push({ links, colour: explorer.tone(0.3 + 0.22 * n), width: 0.8 + 0.5 * n, alpha: Math.min(1, faint(sets.all) * (1 + 0.5 * n)),
                                               says: weights ? ["weight below 0.001", "weight to 0.01", "weight to 0.1", "weight above 0.1"][n] : "chosen" }));
      }
      return list.filter((style) => style.links.length > 0);
    }
    // Which nodes are to be drawn at full strength; null: all.
    paintLinks(surface, plan, colours) {
      const { query, key } = this.model.chosen(), { first, sets } = this.drawn, none = query < 0 && key < 0;
      const ends = (links) => {
        const found = [];
        for (const [i, j] of links) {
          const [x0, y0] = plan.at(i), [x1, y1] = plan.at(j);
          const isOut = (a, b, most) => (a < 0 && b < 0) || (a > most && b > most);
          if (!isOut(x0, x1, this.width) && !isOut(y0, y1, this.height)) found.push(x0, y0, x1, y1);
        }
        return found;
      };
      this.cut = 0;
      surface.clip(0, 0, this.width, this.height);
      for (const { links, colour, width, alpha } of this.styles(colours)) {
        this.cut += Math.max(0, links.length - kMostLines);
        surface.segments(ends(this.heaviest(links)), colour, width, none ? alpha : Math.min(alpha, 0.1));
      }
      let strong = null;
      if (!none) {
        const out = sets.all.filter(([i]) => i === query), into = sets.all.filter(([, j]) => j === first + key && key >= 0);
        surface.segments(ends(into), colours.incoming, 2, 0.9);
        surface.segments(ends(out), colours.chosen, 2, 0.9);
        strong = new Set([query, key < 0 ? -1 : first + key, ...out.map(([, j]) => j), ...into.map(([i]) => i)]);
      }
      surface.unclip();
      return strong;
    }
    heaviest(links) {
      const { weights } = this.model.head;
      if (links.length <= kMostLines) return links;
      if (!weights) return links.slice(0, kMostLines);
      return links.slice().sort((a, b) => weights[b[2]] - weights[a[2]]).slice(0, kMostLines);
    }

    // The class of a node: its label, or where nobody asked, the model's answer; -1: it has none.
    classes() {
      const { labels, predicted } = this.model.input, { length } = this.model.sides.query;
      if (this.model.head.unit > 1 || this.model.isAcross() || !predicted || predicted.length !== length) return null;
      const classes = Array.from(predicted, (answer, n) => (labels && labels.length === length && labels[n] >= 0 ? labels[n] : answer));
      return classes.some((n) => n >= kMostClasses) ? null : classes;
    }
    paintNodes(surface, plan, colours, strong) {
      const { nodes, first, isTree, kind } = this.drawn, { byKey, mostOfKey } = this.model.degrees, { query, key } = this.model.chosen();
      const classes = this.classes(), base = Math.max(1.6, Math.min(6, 90 / Math.sqrt(nodes))) * Math.min(2.5, Math.sqrt(plan.scale));
      const named = this.model.head.unit === 1 && (nodes <= 80 || (plan.scale * plan.size[0]) / Math.sqrt(nodes) > 46);
      surface.clip(0, 0, this.width, this.height);
      for (let n = 0; n < nodes; ++n) {
        const [x, y] = plan.at(n);
        if (x < -20 || y < -20 || x > this.width + 20 || y > this.height + 20) continue;
        const asKey = n - first, degree = asKey >= 0 && asKey < byKey.length ? byKey[asKey] : 0;
        const radius = base * (0.7 + 1.1 * Math.sqrt(degree / Math.max(1, mostOfKey))), isChosen = n === query || (key >= 0 && n === first + key);
        const colour = classes ? explorer.seriesColour(classes[n]) : explorer.tone(0.75), isFaint = strong && !strong.has(n);
        surface.circle(x, y, radius, isFaint ? colours.line : colour, isChosen ? colours.chosen : null);
        if (!named || isFaint) continue;
        const isQuery = first > 0 && n < first, text = isQuery ? this.model.sides.query : this.model.sides.key;
        if (kind === "ring") {
          const [dx, dy] = [this.drawn.places[2 * n] - 0.5, this.drawn.places[2 * n + 1] - 0.5];
          surface.text(x + dx * 26, y + dy * 30 + 4, this.model.label(n, text).slice(0, 14), { size: 11, mono: true, colour: colours.ink, anchor: dx > 0.1 ? "start" : dx < -0.1 ? "end" : "middle" });
          continue;
        }
        const down = isQuery || !(isTree || kind === "rows") || y > plan.corner[1] + 20;
        surface.text(x, down ? y + radius + 12 : y - radius - 5, this.model.label(isQuery ? n : asKey, text).slice(0, 14), { size: 11, mono: true, colour: colours.ink, anchor: "middle" });
      }
      surface.unclip();
    }
    paintLegend(surface, colours) {
      let x = 10, y = 15;
      const say = (text, mark) => {
        const wide = (mark ? 19 : 0) + text.length * 6.4;
        if (x > 10 && x + wide > this.width) { x = 10; y += 15; }
        if (mark) mark(x, y);
        surface.text(x + (mark ? 19 : 0), y, text, { size: 12, colour: colours.soft });
        x += wide + 14;
      };
      for (const { links, colour, says } of this.styles(colours))
        say(says + ": " + explorer.count(links.length), (left, line) => surface.rect(left, line - 6, 14, 4, colour));
      const classes = [...new Set(this.classes() || [])].sort((a, b) => a - b);
      for (const each of classes) say("class " + each, (left, line) => surface.circle(left + 8, line - 4, 5, explorer.seriesColour(each)));
      say("placed " + words[this.drawn.kind] + (this.cut > 0 ? "; the heaviest " + explorer.count(kMostLines) + " of each kind" : ""));
    }

    nodeAt(px, py) {
      if (!this.drawn) return -1;
      const plan = this.plan();
      let best = -1, nearest = kReach;
      for (let n = 0; n < this.drawn.nodes; ++n) {
        const [x, y] = plan.at(n), distance = Math.hypot(px - x, py - y);
        if (distance < nearest) { best = n; nearest = distance; }
      }
      return best;
    }
    choose(n) {
      if (n < 0) return explorer.set({ token: -1 });
      const { first } = this.drawn, isQuery = first > 0 ? n < first : true;
      explorer.set({ token: (isQuery ? n : n - first) * this.model.head.unit, side: isQuery ? "query" : "key" });
    }
    listen() {
      const at = (event) => {
        const box = this.canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      this.canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        if (this.drawn) this.zoomAt(...at(event), Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)));
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
        if (drag.moved && this.drawn) this.pan(drag.last[0] - px, drag.last[1] - py);
        drag.last = [px, py];
        this.tip.hidden = true;
      });
      this.canvas.addEventListener("pointerup", (event) => {
        if (drag && !drag.moved) this.choose(this.nodeAt(...at(event)));
        drag = null;
      });
      this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      this.canvas.addEventListener("dblclick", () => explorer.set({ place: null }));
    }
    point(px, py) {
      const n = this.nodeAt(px, py);
      this.tip.hidden = n < 0;
      if (n < 0) return;
      const { first } = this.drawn, isQuery = first > 0 && n < first, classes = this.classes();
      this.tip.textContent = this.model.nodeName(isQuery ? n : n - first, isQuery ? "query" : "key") + (classes ? "\nclass " + classes[n] : "");
      this.tip.style.left = Math.min(px + 14, this.width - 200) + "px";
      this.tip.style.top = py + 16 + "px";
    }
  }

  // Pairs of nodes once each, for springs.
  function springs(links) {
    const seen = new Set(), pairs = [];
    for (const [a, b] of links) {
      const low = Math.min(a, b), high = Math.max(a, b), key = low * 67108864 + high;
      if (low === high || seen.has(key)) continue;
      seen.add(key);
      pairs.push(low, high);
      if (pairs.length >= 2 * kMostSprings) break;
    }
    return Int32Array.from(pairs);
  }
  // Queries below, keys above.
  function rows(queries, keys) {
    const places = new Float32Array(2 * (queries + keys));
    for (let n = 0; n < queries + keys; ++n) {
      const isQuery = n < queries;
      places[2 * n] = isQuery ? (n + 0.5) / queries : (n - queries + 0.5) / keys;
      places[2 * n + 1] = isQuery ? 0.85 : 0.15;
    }
    return places;
  }

  explorer.GraphView = GraphView;
})();
