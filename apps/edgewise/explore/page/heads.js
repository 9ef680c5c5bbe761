// All heads as small pictures, layers downwards and heads to the right, with their densities.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});

  class HeadsView {
    constructor(parent) {
      this.box = explorer.element("div", { className: "heads", role: "grid", ariaLabel: "layers and heads" });
      parent.append(this.box);
      this.buttons = [];
    }

    // The grid of an input; pictures come later.
    show(input) {
      const heads = input.layers.reduce((most, layer) => Math.max(most, layer.heads.length), 0);
      this.box.replaceChildren();
      this.buttons = [];
      this.box.style.gridTemplateColumns = "auto repeat(" + heads + ", minmax(48px, 84px))";
      this.box.append(explorer.element("span", {}));
      for (let h = 0; h < heads; ++h) this.box.append(explorer.element("span", { className: "head-name", textContent: "head " + h }));
      input.layers.forEach((layer, l) => {
        this.box.append(explorer.element("span", { className: "layer-name", textContent: layer.name || "layer " + l }));
        for (let h = 0; h < heads; ++h) {
          if (h >= layer.heads.length) {
            this.box.append(explorer.element("span", { className: "no-head", textContent: layer.heads.length ? "" : "too long to show" }));
            continue;
          }
          const button = explorer.element("button", { type: "button", className: "head" });
          const canvas = explorer.element("canvas", {});
          button.dataset.layer = l;
          button.dataset.head = h;
          button.title = (layer.name || "layer " + l) + ", head " + h + ": " + layer.heads[h].edges + " edges; with Shift beside";
          button.append(canvas, explorer.element("span", { textContent: explorer.percent(layer.heads[h].density) }));
          button.addEventListener("click", (event) => {
            if (event.shiftKey) explorer.set({ beside: [0, l, h, explorer.state.beside ? explorer.state.beside[3] : -1] });
            else explorer.set({ layer: l, head: h });
          });
          this.box.append(button);
          this.buttons.push({ button, canvas, layer: l, head: h });
        }
      });
      this.mark();
    }
    mark() {
      const { layer, head, beside } = explorer.state, second = beside && beside[0] === 0 ? beside : [];
      for (const each of this.buttons) {
        each.button.setAttribute("aria-current", String(each.layer === layer && each.head === head));
        each.button.classList.toggle("beside", each.layer === second[1] && each.head === second[2]);
      }
    }
    // Packed thumbnails; none in a report without them.
    draw(thumbnails) {
      this.thumbnails = thumbnails;
      if (!thumbnails) return;
      const size = thumbnails.meta.size, palette = explorer.palette(), empty = explorer.emptyWord();
      this.buttons.forEach(({ canvas }, n) => {
        const words = new Uint32Array(size * size);
        for (let p = 0; p < words.length; ++p) {
          const tone = thumbnails.pixels[n * size * size + p];
          words[p] = tone ? palette[Math.max(30, tone)] : empty;
        }
        canvas.width = canvas.height = size;
        canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(words.buffer), size, size), 0, 0);
      });
    }
  }

  // As a picture, for files.
  HeadsView.prototype.picture = function () {
    const size = 96, left = 90, cell = size + 24, columns = this.buttons.reduce((most, each) => Math.max(most, each.head + 1), 0);
    const rows = this.buttons.reduce((most, each) => Math.max(most, each.layer + 1), 0);
    return {
      width: left + columns * (size + 12), height: 24 + rows * cell,
      paint: (surface) => {
        const colours = explorer.colours(), { about } = explorer.model;
        for (let h = 0; h < columns; ++h) surface.text(left + h * (size + 12) + size / 2, 16, "head " + h, { size: 12, colour: colours.soft, anchor: "middle" });
        for (const { canvas, layer, head } of this.buttons) {
          const x = left + head * (size + 12), y = 24 + layer * cell;
          if (head === 0) surface.text(4, y + size / 2, explorer.model.layerName(layer), { size: 12, colour: colours.soft });
          surface.image(canvas, x, y, size, size);
          surface.rect(x, y, size, size, null, colours.line);
          surface.text(x + size / 2, y + size + 14, explorer.percent(about.layers[layer].heads[head].density), { size: 11, colour: colours.ink, anchor: "middle" });
        }
      } };
  };

  explorer.HeadsView = HeadsView;
})();
