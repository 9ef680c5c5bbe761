// The block model of a head: memberships of queries, block matrix, and the key side with the block matrix folded
// in, p_ij = sum over c of query_membership[i][c] key_side[j][c]. Clusters stand in the order of their queries' mass.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kTop = 40, kMargin = 16;

  class ClustersView {
    constructor(parent, model) {
      this.model = model;
      this.canvas = explorer.element("canvas", { className: "clusters", tabIndex: 0, ariaLabel: "memberships and block matrix" });
      this.tip = explorer.element("div", { className: "tip", hidden: true });
      parent.append(this.canvas, this.tip);
      this.width = this.height = 0;
      this.canvas.addEventListener("pointermove", (event) => this.point(event));
      this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      this.canvas.addEventListener("click", (event) => {
        const found = this.cellAt(event);
        if (found && found.node !== undefined) explorer.set({ token: found.node * this.model.head.unit, side: found.name === "queries" ? "query" : "key" });
      });
    }
    show() { this.draw(); }
    resize(width, height) {
      this.width = width;
      this.height = height;
      this.draw();
    }

    // The three heat maps: where they stand and what they hold.
    panels() {
      const head = this.model.head;
      if (!head || !head.query_membership) return null;
      const stride = head.meta.membership_stride;
      const queries = Math.ceil(head.queries / stride), keys = Math.ceil(head.keys / stride);
      const clusters = queries ? head.query_membership.length / queries : 0;
      const mass = new Float64Array(clusters);
      head.query_membership.forEach((value, n) => { mass[n % clusters] += value; });
      const order = Array.from(mass.keys()).sort((a, b) => mass[b] - mass[a]);
      const room = (this.width - 4 * kMargin) / 3, tall = this.height - kTop - kMargin;
      const panel = (n, name, rows, title, values, isNodes) => ({
        name, rows, columns: clusters, title, isNodes, stride, order, x: kMargin + n * (room + kMargin), y: kTop, width: room,
        height: isNodes ? tall : Math.min(room, tall), values });
      const list = [
        panel(0, "queries", queries, "memberships of queries", (r, c) => head.query_membership[r * clusters + order[c]], true),
        panel(1, "blocks", clusters, "block matrix", head.block_matrix && ((r, c) => head.block_matrix[order[r] * clusters + order[c]]), false),
        panel(2, "keys", keys, "keys, times block matrix", (r, c) => head.key_side[r * clusters + order[c]], true)];
      for (const each of list) {
        each.least = each.name === "queries" ? 0 : Infinity;
        each.most = each.name === "queries" ? 1 : 0;
        if (!each.values || each.name === "queries") continue;
        for (let r = 0; r < each.rows; ++r)
          for (let c = 0; c < clusters; ++c) {
            each.least = Math.min(each.least, each.values(r, c));
            each.most = Math.max(each.most, each.values(r, c));
          }
      }
      return list;
    }

    draw() {
      if (this.width < 1 || this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => {
        this.drawing = false;
        const surface = new explorer.CanvasSurface(this.canvas, this.width, this.height, Math.min(2, window.devicePixelRatio || 1));
        surface.context.clearRect(0, 0, this.width, this.height);
        this.paint(surface);
        explorer.painted();
      });
    }
    paint(surface) {
      const colours = explorer.colours(), panels = this.panels();
      if (!panels)
        return surface.text(this.width / 2, this.height / 2, "No block model chose the edges of this head.", { colour: colours.soft, size: 14, anchor: "middle" });
      for (const panel of panels) {
        surface.text(panel.x, panel.y - 20, panel.title, { colour: colours.ink, size: 13 });
        surface.text(panel.x, panel.y - 5, (panel.isNodes ? "tokens by clusters" : "clusters by clusters") +
          (panel.values ? ", " + explorer.number(panel.least) + " to " + explorer.number(panel.most) : ""), { colour: colours.soft, size: 11 });
        if (!panel.values) continue;
        surface.image(this.heat(panel), panel.x, panel.y, panel.width, panel.height);
        surface.rect(panel.x - 1, panel.y - 1, panel.width + 2, panel.height + 2, null, colours.line);
        const node = this.model.chosen()[panel.name === "queries" ? "query" : "key"];
        if (panel.isNodes && node >= 0) {
          const row = Math.floor(node / panel.stride), tall = panel.height / panel.rows;
          surface.rect(panel.x - 2, panel.y + row * tall - 1, panel.width + 4, Math.max(3, tall + 2), null, colours.chosen);
        }
      }
    }
    heat(panel) {
      const canvas = document.createElement("canvas"), palette = explorer.palette();
      canvas.width = panel.columns;
      canvas.height = panel.rows;
      const words = new Uint32Array(panel.rows * panel.columns);
      for (let r = 0; r < panel.rows; ++r)
        for (let c = 0; c < panel.columns; ++c)
          words[r * panel.columns + c] = palette[Math.round(255 * Math.max(0, Math.min(1, (panel.values(r, c) - panel.least) / (panel.most - panel.least || 1))))];
      canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(words.buffer), panel.columns, panel.rows), 0, 0);
      return canvas;
    }
    cellAt(event) {
      const box = this.canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      for (const panel of this.panels() || []) {
        const column = Math.floor(((px - panel.x) / panel.width) * panel.columns), row = Math.floor(((py - panel.y) / panel.height) * panel.rows);
        if (!panel.values || column < 0 || row < 0 || column >= panel.columns || row >= panel.rows) continue;
        return { name: panel.name, value: panel.values(row, column), cluster: panel.order[column], px, py,
                 other: panel.isNodes ? undefined : panel.order[row], node: panel.isNodes ? row * panel.stride : undefined };
      }
      return null;
    }
    point(event) {
      const found = this.cellAt(event);
      this.tip.hidden = !found;
      if (!found) return;
      const what = found.node === undefined ? "clusters " + found.other + " and " + found.cluster
        : this.model.nodeName(found.node, found.name === "queries" ? "query" : "key") + "\ncluster " + found.cluster;
      this.tip.textContent = what + "\n" + explorer.number(found.value);
      this.tip.style.left = Math.min(found.px + 14, this.width - 200) + "px";
      this.tip.style.top = found.py + 16 + "px";
    }
  }

  explorer.ClustersView = ClustersView;
})();
