// From lists of edges to pixels. Runs in a Worker, and on the page itself where there is none.
//
// A graph is { queries, keys, offsets, columns, weights or null }: the edges of query i are
// columns[offsets[i]] .. columns[offsets[i + 1] - 1], ascending. Queries and keys are nodes: tokens, or groups
// of 16 in squares.
"use strict";
(function (scope) {
  const raster = {};

  // Edges by query and by key, and the most that any has.
  raster.degrees = function (graph) {
    const byQuery = new Uint32Array(graph.queries), byKey = new Uint32Array(graph.keys);
    for (let i = 0; i < graph.queries; ++i) byQuery[i] = graph.offsets[i + 1] - graph.offsets[i];
    for (let e = 0; e < graph.columns.length; ++e) ++byKey[graph.columns[e]];
    const most = (counts) => counts.reduce((a, b) => Math.max(a, b), 0);
    return { byQuery, byKey, mostOfQuery: most(byQuery), mostOfKey: most(byKey) };
  };

  // The edges of every key: rows[offsets[j]] .. are its queries, edges[...] their numbers in the graph.
  raster.transposed = function (graph) {
    const offsets = new Uint32Array(graph.keys + 1);
    for (let e = 0; e < graph.columns.length; ++e) ++offsets[graph.columns[e] + 1];
    for (let j = 0; j < graph.keys; ++j) offsets[j + 1] += offsets[j];
    const next = offsets.slice(), rows = new Uint32Array(graph.columns.length);
    const edges = new Uint32Array(graph.columns.length);
    for (let i = 0; i < graph.queries; ++i) {
      for (let e = graph.offsets[i]; e < graph.offsets[i + 1]; ++e) {
        const place = next[graph.columns[e]]++;
        rows[place] = i;
        edges[place] = e;
      }
    }
    return { offsets, rows, edges };
  };

  // A weight as a tone in 0..1: from a ten-thousandth to 1, by its logarithm.
  raster.weightTone = (weight) => Math.min(1, Math.max(0.1, 1 + Math.log10(Math.max(weight, 1e-9)) / 4));
  raster.degreeTone = (degree, most) => 0.1 + 0.9 * Math.log1p(degree) / Math.log1p(Math.max(most, 1));

  // The first edge of a row whose key is at least `key`.
  function firstAt(columns, begin, end, key) {
    while (begin < end) {
      const middle = (begin + end) >> 1;
      if (columns[middle] < key) begin = middle + 1; else end = middle;
    }
    return begin;
  }
  raster.firstAt = firstAt;

  // The number of the edge from query i to key j, or -1.
  raster.edgeAt = function (graph, i, j) {
    if (i < 0 || i >= graph.queries) return -1;
    const e = firstAt(graph.columns, graph.offsets[i], graph.offsets[i + 1], j);
    return e < graph.offsets[i + 1] && graph.columns[e] === j ? e : -1;
  };

  // The tone of an edge in a mode other than "edges".
  function toneOf(graph, degrees, mode) {
    if (mode === "query") return (e, i) => raster.degreeTone(degrees.byQuery[i], degrees.mostOfQuery);
    if (mode === "key") return (e) => raster.degreeTone(degrees.byKey[graph.columns[e]], degrees.mostOfKey);
    if (mode === "weight" && graph.weights) return (e) => raster.weightTone(graph.weights[e]);
    return () => 1;
  }
  raster.toneOf = toneOf;

  // Tones of a window: width x height pixels from node (x, y) on, `scale` pixels a node. 0 = no edge.
  raster.tones = function (graph, degrees, view) {
    const { x, y, scale, width, height, mode } = view;
    const tones = new Float32Array(width * height);
    const counted = mode === "edges" && scale < 1, pairs = counted ? 1 / (scale * scale) : 1;
    const tone = toneOf(graph, degrees, mode), gap = scale >= 4 ? 1 : 0;
    const firstKey = Math.max(0, Math.floor(x)), lastKey = Math.min(graph.keys, Math.ceil(x + width / scale));
    const lastRow = Math.min(graph.queries, Math.ceil(y + height / scale));
    for (let i = Math.max(0, Math.floor(y)); i < lastRow; ++i) {
      const top = Math.floor((i - y) * scale);
      const bottom = Math.min(height, Math.max(top + 1, Math.floor((i + 1 - y) * scale) - gap));
      if (bottom <= 0 || top >= height) continue;
      const end = graph.offsets[i + 1];
      for (let e = firstAt(graph.columns, graph.offsets[i], end, firstKey); e < end; ++e) {
        const j = graph.columns[e];
        if (j >= lastKey) break;
        const left = Math.floor((j - x) * scale);
        const right = Math.min(width, Math.max(left + 1, Math.floor((j + 1 - x) * scale) - gap));
        const value = counted ? 1 : tone(e, i);
        for (let py = Math.max(0, top); py < bottom; ++py) {
          for (let px = Math.max(0, left); px < right; ++px) {
            const at = py * width + px;
            if (counted) tones[at] += 1; else if (value > tones[at]) tones[at] = value;
          }
        }
      }
    }
    if (counted)
      for (let n = 0; n < tones.length; ++n)
        if (tones[n] > 0) tones[n] = 0.1 + 0.9 * Math.sqrt(Math.min(1, tones[n] / pairs));
    return tones;
  };

  // The same as pixels: palette[0..255] by tone, `empty` where there is no edge (words as ImageData has them).
  raster.pixels = function (graph, degrees, view) {
    const tones = raster.tones(graph, degrees, view), words = new Uint32Array(tones.length);
    for (let n = 0; n < tones.length; ++n)
      words[n] = tones[n] > 0 ? view.palette[Math.min(255, Math.round(tones[n] * 255))] : view.empty;
    return new Uint8ClampedArray(words.buffer);
  };

  // In a Worker: { graph } keeps a graph, { view, id } answers { id, view, pixels }.
  if (typeof WorkerGlobalScope !== "undefined" && scope instanceof WorkerGlobalScope) {
    let graph = null, degrees = null;
    scope.onmessage = (event) => {
      const message = event.data;
      if (message.graph) {
        graph = message.graph;
        degrees = raster.degrees(graph);
      } else if (graph) {
        const pixels = raster.pixels(graph, degrees, message.view);
        scope.postMessage({ id: message.id, view: message.view, pixels }, [pixels.buffer]);
      }
    };
  } else {
    scope.edgewiseRaster = raster;
  }
})(self);
