// What is loaded of one side of the page: a run, a step, an input and one head of it. There are two: the left, and what
// stands beside it.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const raster = window.edgewiseRaster;
  const transposes = new WeakMap();

  class Model {
    constructor(which) {
      Object.assign(this, { which, run: null, step: null, at: -1, about: null, input: null, head: null, degrees: null, right: null,
                            given: null, layer: 0, headNumber: 0, length: 0, task: "", names: [], hasNames: false, pictureWidth: 0,
                            sides: { query: null, key: null } });
    }

    // A step's description; `about` is one of its inputs.
    describe(at, step, about) {
      const pieces = new Map(step.pieces || []);
      const names = step.token_names.length ? (id) => step.token_names[id] : (id) => pieces.get(id);
      Object.assign(this, { at, step, about, length: about.length, task: step.task, names,
                            hasNames: step.token_names.length > 0 || pieces.size > 0, pictureWidth: step.picture_width });
    }
    // The input itself and a head, as they were sent.
    take(layer, head, input, packed) {
      const { meta } = packed, said = this.about.layers[layer];
      const text = { length: input.meta.length, tokens: input.tokens, valid: input.valid, positions: input.positions, isTarget: false };
      const target = { length: input.meta.target_length || 0, tokens: input.target_tokens, valid: input.target_valid, isTarget: true };
      const graph = { meta, unit: meta.unit, queries: meta.queries, keys: meta.keys, offsets: packed.offsets, columns: packed.keys,
                      weights: packed.weights || null, query_membership: packed.query_membership, key_side: packed.key_side,
                      block_matrix: packed.block_matrix };
      const lists = (offsets, columns) => (offsets ? { offsets, columns, queries: offsets.length - 1, keys: offsets.length - 1 } : null);
      Object.assign(this, { layer, headNumber: head, input, head: graph, degrees: raster.degrees(graph),
                            right: lists(input.right_offsets, input.right_keys), given: lists(input.given_offsets, input.given_keys),
                            sides: { query: said.of_target ? target : text, key: said.looks_at_target ? target : text } });
      if (!this.given && this.task === "listops" && !this.isAcross()) this.given = this.tree();
    }

    // Queries and keys are of two sequences.
    isAcross() { return this.sides.query !== this.sides.key; }
    layerName(layer) {
      const said = this.about && this.about.layers[layer];
      return said && said.name ? said.name : "layer " + layer;
    }
    caption() { return this.layerName(this.layer) + ", head " + this.headNumber + ", step " + this.at + (this.run ? " \u2013 " + this.run.name : ""); }

    tokenName(n, text = this.sides.query) {
      const id = text && text.tokens ? text.tokens[n] : undefined;
      if (id === undefined) return String(n);
      const name = this.names(id);
      return name !== undefined ? name : String(id);
    }
    // "token 12: [MAX", "pixel 3, 14", "tokens 32 to 47"; side: "query" or "key".
    nodeName(node, side, unit = this.head.unit) {
      const text = this.sides[side];
      if (unit > 1) return "tokens " + node * unit + " to " + Math.min(text.length - 1, (node + 1) * unit - 1);
      if (this.pictureWidth > 0 && node < text.length) {
        const place = text.positions ? text.positions[node] : node;
        return "pixel " + Math.floor(place / this.pictureWidth) + ", " + (place % this.pictureWidth);
      }
      if (node >= text.length || this.task === "graph") return "node " + node;
      return "token " + node + (text.tokens ? ": " + this.label(node, text) : "");
    }
    // A token's name where a blank alone would not be seen.
    label(n, text) {
      const name = this.tokenName(n, text);
      return name.trim() === "" ? name.replaceAll(" ", "\u2423") : name;
    }

    // The node of the chosen token as a query and as a key; -1: it is none.
    chosen() {
      const { token, side } = explorer.state;
      const node = token < 0 || !this.head ? -1 : Math.floor(token / this.head.unit);
      const isIn = (of, nodes) => (this.isAcross() && side !== of) || node >= nodes ? -1 : node;
      return { query: isIn("query", this.head ? this.head.queries : 0), key: isIn("key", this.head ? this.head.keys : 0) };
    }
    transposed() {
      if (!transposes.has(this.head)) transposes.set(this.head, raster.transposed(this.head));
      return transposes.get(this.head);
    }
    // [key, edge] of a query's edges, and [query, edge] of a key's.
    edgesOf(query) {
      const found = [];
      if (query >= 0) for (let e = this.head.offsets[query]; e < this.head.offsets[query + 1]; ++e) found.push([this.head.columns[e], e]);
      return found;
    }
    edgesInto(key) {
      const found = [];
      if (key < 0) return found;
      const back = this.transposed();
      for (let n = back.offsets[key]; n < back.offsets[key + 1]; ++n) found.push([back.rows[n], back.edges[n]]);
      return found;
    }

    // Of every token of a nested expression its operator; -1: none. Also of damaged ones.
    parents() {
      const text = this.sides.query, open = [], parents = new Int32Array(text.length).fill(-1);
      for (let n = 0; n < text.length; ++n) {
        if (open.length) parents[n] = open[open.length - 1];
        const name = this.tokenName(n, text);
        if (name.startsWith("[")) open.push(n); else if (name === "X") open.pop();
      }
      return parents;
    }
    // The same as edges from every token to its operator.
    tree() {
      const parents = this.parents(), offsets = new Int32Array(parents.length + 1), columns = [];
      parents.forEach((parent, n) => {
        if (parent >= 0) columns.push(parent);
        offsets[n + 1] = columns.length;
      });
      return { offsets, columns: Int32Array.from(columns), queries: parents.length, keys: parents.length, parents };
    }
  }

  explorer.Model = Model;
  explorer.models = [new Model(0), new Model(1)];
  explorer.model = explorer.models[0];
})();
