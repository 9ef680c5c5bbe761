// Places of the nodes of a graph in the square 0..1. The same graph always gets the same places. Runs in a Worker, and on
// the page itself where there is none.
//
// Forces: edges pull like springs, all nodes push each other away (far ones by the quadtree's means, as Barnes and Hut
// do), and the centre holds what hangs together with nothing.
"use strict";
(function (scope) {
  const layout = {};
  const kOpen = 1;  // a square of the quadtree is taken as a point when its width is below so many times its distance
  const kHold = 0.8;  // of the centre: what is loose comes to rest not far outside of the rest

  // Equal angles around a circle, from the top, in the order of the nodes.
  layout.ring = function (nodes) {
    const places = new Float32Array(2 * nodes);
    for (let n = 0; n < nodes; ++n) {
      const angle = (2 * Math.PI * n) / Math.max(nodes, 1) - Math.PI / 2;
      places[2 * n] = 0.5 + 0.48 * Math.cos(angle);
      places[2 * n + 1] = 0.5 + 0.48 * Math.sin(angle);
    }
    return places;
  };

  // parents: of every node the one above it, -1 = none; leaves in their order from left to right, roots on top.
  layout.tree = function (parents) {
    const nodes = parents.length, places = new Float32Array(2 * nodes), depth = new Int32Array(nodes), children = new Int32Array(nodes);
    let deepest = 1;
    for (let n = 0; n < nodes; ++n) {  // a parent comes before its children
      if (parents[n] < 0) continue;
      depth[n] = depth[parents[n]] + 1;
      ++children[parents[n]];
      deepest = Math.max(deepest, depth[n]);
    }
    const left = new Float32Array(nodes).fill(Infinity), right = new Float32Array(nodes).fill(-Infinity);
    let leaves = 0;
    for (let n = 0; n < nodes; ++n) if (children[n] === 0) left[n] = right[n] = leaves++;
    for (let n = nodes - 1; n >= 0; --n) {
      if (parents[n] < 0) continue;
      left[parents[n]] = Math.min(left[parents[n]], left[n]);
      right[parents[n]] = Math.max(right[parents[n]], right[n]);
    }
    for (let n = 0; n < nodes; ++n) {
      places[2 * n] = (0.5 + (left[n] + right[n]) / 2) / Math.max(leaves, 1);
      places[2 * n + 1] = 0.04 + (0.92 * depth[n]) / deepest;
    }
    return places;
  };

  // A quadtree over places: per square the sum of its nodes' places, their number, and its four parts.
  function quadtree(places, nodes) {
    let low = Infinity, high = -Infinity;
    for (let n = 0; n < 2 * nodes; ++n) {
      low = Math.min(low, places[n]);
      high = Math.max(high, places[n]);
    }
    const size = Math.max(high - low, 1e-6) * 1.0001, most = 4 * nodes + 64;
    const tree = { size, count: [0], x: [0], y: [0], width: [size], parts: [-1, -1, -1, -1] };
    const add = (width) => {
      tree.count.push(0); tree.x.push(0); tree.y.push(0); tree.width.push(width);
      tree.parts.push(-1, -1, -1, -1);
      return tree.count.length - 1;
    };
    const single = [-1];  // the node of a square that has one alone
    const put = (n, square, cornerX, cornerY, width, depth) => {
      for (;;) {
        const was = tree.count[square]++, other = single[square];
        tree.x[square] += places[2 * n];
        tree.y[square] += places[2 * n + 1];
        if (was === 0) { single[square] = n; return; }
        if (depth > 24 || tree.count.length > most) return;  // in one place: the square is their mean
        const half = width / 2;
        const part = (m) => (places[2 * m] >= cornerX + half ? 1 : 0) + (places[2 * m + 1] >= cornerY + half ? 2 : 0);
        if (was === 1 && other >= 0) {
          single[square] = -1;
          const p = part(other), child = add(half);
          single[child] = other;
          tree.parts[4 * square + p] = child;
          tree.count[child] = 1;
          tree.x[child] = places[2 * other];
          tree.y[child] = places[2 * other + 1];
        }
        const p = part(n);
        if (tree.parts[4 * square + p] < 0) {
          tree.parts[4 * square + p] = add(half);
          single[tree.parts[4 * square + p]] = -1;
        }
        square = tree.parts[4 * square + p];
        if (p & 1) cornerX += half;
        if (p & 2) cornerY += half;
        width = half;
        ++depth;
      }
    };
    for (let n = 0; n < nodes; ++n) put(n, 0, low, low, size, 0);
    return tree;
  }

  // edges: pairs [a, b, a, b, ...]
  layout.forces = function (nodes, edges) {
    const places = new Float64Array(2 * nodes), moves = new Float64Array(2 * nodes), degree = new Float64Array(nodes);
    for (let n = 0; n < nodes; ++n) {  // a sunflower: no two in one place, none preferred
      const radius = Math.sqrt((n + 0.5) / nodes), angle = n * 2.399963229728653;
      places[2 * n] = radius * Math.cos(angle);
      places[2 * n + 1] = radius * Math.sin(angle);
    }
    for (let e = 0; e < edges.length; ++e) ++degree[edges[e]];
    const rounds = nodes <= 400 ? 300 : nodes <= 3000 ? 160 : nodes <= 12000 ? 60 : 25, ideal = 1.6 / Math.sqrt(Math.max(nodes, 1));
    const stack = new Int32Array(256);
    for (let round = 0; round < rounds; ++round) {
      const tree = quadtree(places, nodes), step = 0.12 * (1 - round / rounds) ** 1.5 + 0.002;
      moves.fill(0);
      for (let n = 0; n < nodes; ++n) {
        const x = places[2 * n], y = places[2 * n + 1];
        let top = 0;
        stack[top++] = 0;
        while (top > 0) {
          const square = stack[--top], count = tree.count[square];
          if (count === 0) continue;
          const dx = x - tree.x[square] / count, dy = y - tree.y[square] / count, far = dx * dx + dy * dy;
          const width = tree.width[square], first = 4 * square;
          const isLeaf = tree.parts[first] < 0 && tree.parts[first + 1] < 0 && tree.parts[first + 2] < 0 && tree.parts[first + 3] < 0;
          if (isLeaf || width * width < kOpen * kOpen * far) {
            const push = (count * ideal * ideal) / Math.max(far, ideal * ideal * 1e-3);
            moves[2 * n] += dx * push;
            moves[2 * n + 1] += dy * push;
          } else {
            for (let p = 0; p < 4; ++p) if (tree.parts[first + p] >= 0 && top < 250) stack[top++] = tree.parts[first + p];
          }
        }
        moves[2 * n] -= x * kHold;
        moves[2 * n + 1] -= y * kHold;
      }
      for (let e = 0; e + 1 < edges.length; e += 2) {
        const a = edges[e], b = edges[e + 1], dx = places[2 * a] - places[2 * b], dy = places[2 * a + 1] - places[2 * b + 1];
        const pull = Math.sqrt(dx * dx + dy * dy) / ideal / Math.sqrt(Math.max(1, Math.min(degree[a], degree[b])));  // a hub is not torn apart
        moves[2 * a] -= dx * pull; moves[2 * a + 1] -= dy * pull;
        moves[2 * b] += dx * pull; moves[2 * b + 1] += dy * pull;
      }
      for (let n = 0; n < nodes; ++n) {
        const length = Math.hypot(moves[2 * n], moves[2 * n + 1]), most = Math.min(length, step) / (length || 1);
        places[2 * n] += moves[2 * n] * most;
        places[2 * n + 1] += moves[2 * n + 1] * most;
      }
    }
    return intoSquare(places, nodes);
  };

  function intoSquare(places, nodes) {
    const result = new Float32Array(2 * nodes), low = [Infinity, Infinity], high = [-Infinity, -Infinity];
    for (let n = 0; n < 2 * nodes; ++n) {
      low[n % 2] = Math.min(low[n % 2], places[n]);
      high[n % 2] = Math.max(high[n % 2], places[n]);
    }
    const size = Math.max(high[0] - low[0], high[1] - low[1], 1e-9);
    for (let n = 0; n < 2 * nodes; ++n) result[n] = 0.5 + (0.96 * (places[n] - (low[n % 2] + high[n % 2]) / 2)) / size;
    return result;
  }

  // { kind: "ring" | "tree" | "forces", nodes, edges, parents }
  layout.places = function ({ kind, nodes, edges, parents }) {
    if (kind === "tree") return layout.tree(parents);
    return kind === "ring" || nodes < 2 ? layout.ring(nodes) : layout.forces(nodes, edges);
  };

  if (typeof WorkerGlobalScope !== "undefined" && scope instanceof WorkerGlobalScope) {
    scope.onmessage = (event) => {
      const places = layout.places(event.data);
      scope.postMessage({ id: event.data.id, places }, [places.buffer]);
    };
  } else {
    scope.edgewiseLayout = layout;
  }
})(self);
