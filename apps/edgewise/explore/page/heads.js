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
        this.box.append(explorer.element("span", { className: "layer-name", textContent: "layer " + l }));
        for (let h = 0; h < heads; ++h) {
          if (h >= layer.heads.length) {
            this.box.append(explorer.element("span", { className: "no-head", textContent: "too long to show" }));
            continue;
          }
          const button = explorer.element("button", { type: "button", className: "head" });
          const canvas = explorer.element("canvas", {});
          button.dataset.layer = l;
          button.dataset.head = h;
          button.title = "layer " + l + ", head " + h + ": " + layer.heads[h].edges + " edges";
          button.append(canvas, explorer.element("span", { textContent: explorer.percent(layer.heads[h].density) }));
          button.addEventListener("click", () => explorer.set({ layer: l, head: h }));
          this.box.append(button);
          this.buttons.push({ button, canvas, layer: l, head: h });
        }
      });
      this.mark();
    }
    mark() {
      const { layer, head } = explorer.state;
      for (const each of this.buttons) each.button.setAttribute("aria-current", String(each.layer === layer && each.head === head));
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

  explorer.HeadsView = HeadsView;
})();
