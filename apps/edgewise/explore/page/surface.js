// Two things to draw on with the same strokes: a canvas, and SVG text. Every view draws through them, so that
// what is seen and what is saved are one.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kFont = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";
  const kMono = "ui-monospace, 'DejaVu Sans Mono', Consolas, monospace";

  class CanvasSurface {
    constructor(canvas, width, height, ratio) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      this.width = width;
      this.height = height;
      this.context = canvas.getContext("2d");
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.context.imageSmoothingEnabled = false;
    }
    rect(x, y, w, h, fill, stroke) {
      if (fill) { this.context.fillStyle = fill; this.context.fillRect(x, y, w, h); }
      if (stroke) { this.context.strokeStyle = stroke; this.context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); }
    }
    line(points, colour, width) {
      this.context.strokeStyle = colour;
      this.context.lineWidth = width || 1;
      this.context.beginPath();
      points.forEach(([x, y], n) => (n ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
      this.context.stroke();
      this.context.lineWidth = 1;
    }
    text(x, y, text, { size = 12, colour, anchor = "start", mono = false, bold = false } = {}) {
      this.context.font = (bold ? "600 " : "") + size + "px " + (mono ? kMono : kFont);
      this.context.fillStyle = colour;
      this.context.textAlign = anchor === "middle" ? "center" : anchor;
      this.context.fillText(text, x, y);
    }
    image(canvas, x, y, w, h) { this.context.drawImage(canvas, x, y, w, h); }
    clip(x, y, w, h) {
      this.context.save();
      this.context.beginPath();
      this.context.rect(x, y, w, h);
      this.context.clip();
    }
    unclip() { this.context.restore(); }
  }

  const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // Control characters stand in no XML.
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => escapes[c]).replace(/[\u0000-\u001f\ufffe\uffff]/g, "\ufffd");
  const short = (x) => +x.toFixed(2);

  class SvgSurface {
    constructor(width, height) {
      this.width = width;
      this.height = height;
      this.parts = [];
      this.clips = 0;
    }
    rect(x, y, w, h, fill, stroke) {
      const inset = stroke ? 0.5 : 0;
      this.parts.push(`<rect x="${short(x + inset)}" y="${short(y + inset)}" width="${short(Math.max(0, w - 2 * inset))}" ` +
        `height="${short(Math.max(0, h - 2 * inset))}" fill="${fill || "none"}"${stroke ? ` stroke="${stroke}"` : ""}/>`);
    }
    line(points, colour, width) {
      this.parts.push(`<polyline fill="none" stroke="${colour}" stroke-width="${width || 1}" ` +
        `points="${points.map(([x, y]) => short(x) + "," + short(y)).join(" ")}"/>`);
    }
    text(x, y, text, { size = 12, colour, anchor = "start", mono = false, bold = false } = {}) {
      this.parts.push(`<text x="${short(x)}" y="${short(y)}" font-size="${size}" fill="${colour}" text-anchor="${anchor}" ` +
        `font-family="${escaped(mono ? kMono : kFont)}"${bold ? ' font-weight="600"' : ""} xml:space="preserve">${escaped(text)}</text>`);
    }
    image(canvas, x, y, w, h) {
      this.parts.push(`<image x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" ` +
        `image-rendering="pixelated" href="${canvas.toDataURL("image/png")}"/>`);
    }
    clip(x, y, w, h) {
      const id = "clip" + ++this.clips;
      this.parts.push(`<clipPath id="${id}"><rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"/>` +
        `</clipPath><g clip-path="url(#${id})">`);
    }
    unclip() { this.parts.push("</g>"); }
    finish() {
      return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" ` +
        `viewBox="0 0 ${this.width} ${this.height}">\n${this.parts.join("\n")}\n</svg>\n`;
    }
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  explorer.CanvasSurface = CanvasSurface;
  explorer.SvgSurface = SvgSurface;
  explorer.monoFont = kMono;
  // view.paint(surface) draws all of a view that has a size.
  explorer.svgOf = function (view) {
    const surface = new SvgSurface(view.width, view.height);
    surface.rect(0, 0, view.width, view.height, explorer.colours().back);
    view.paint(surface);
    return surface.finish();
  };
  explorer.saveSvg = (view, name) => save(new Blob([explorer.svgOf(view)], { type: "image/svg+xml" }), name + ".svg");
  explorer.savePng = function (view, name) {
    const canvas = document.createElement("canvas");
    const surface = new CanvasSurface(canvas, view.width, view.height, 2);
    surface.rect(0, 0, view.width, view.height, explorer.colours().back);
    view.paint(surface);
    canvas.toBlob((blob) => save(blob, name + ".png"), "image/png");
  };
})();
