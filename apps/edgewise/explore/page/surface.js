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
    // Many lines of one colour: [x0, y0, x1, y1, x0, y0, ...].
    segments(ends, colour, width, alpha = 1) {
      this.context.strokeStyle = colour;
      this.context.globalAlpha = alpha;
      this.context.lineWidth = width;
      this.context.beginPath();
      for (let n = 0; n + 3 < ends.length; n += 4) {
        this.context.moveTo(ends[n], ends[n + 1]);
        this.context.lineTo(ends[n + 2], ends[n + 3]);
      }
      this.context.stroke();
      this.context.globalAlpha = 1;
      this.context.lineWidth = 1;
    }
    circle(x, y, radius, fill, stroke) {
      this.context.beginPath();
      this.context.arc(x, y, radius, 0, 2 * Math.PI);
      if (fill) { this.context.fillStyle = fill; this.context.fill(); }
      if (stroke) { this.context.strokeStyle = stroke; this.context.lineWidth = 2; this.context.stroke(); this.context.lineWidth = 1; }
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
    // What is drawn until pop() is moved.
    push(x, y) { this.context.save(); this.context.translate(x, y); }
    pop() { this.context.restore(); }
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
    segments(ends, colour, width, alpha = 1) {
      const path = [];
      for (let n = 0; n + 3 < ends.length; n += 4) path.push(`M${short(ends[n])} ${short(ends[n + 1])}L${short(ends[n + 2])} ${short(ends[n + 3])}`);
      if (path.length) this.parts.push(`<path fill="none" stroke="${colour}" stroke-width="${width}" stroke-opacity="${alpha}" d="${path.join("")}"/>`);
    }
    circle(x, y, radius, fill, stroke) {
      this.parts.push(`<circle cx="${short(x)}" cy="${short(y)}" r="${short(radius)}" fill="${fill || "none"}"${stroke ? ` stroke="${stroke}" stroke-width="2"` : ""}/>`);
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
    push(x, y) { this.parts.push(`<g transform="translate(${short(x)} ${short(y)})">`); }
    pop() { this.parts.push("</g>"); }
    finish() {
      return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" ` +
        `viewBox="0 0 ${this.width} ${this.height}">\n${this.parts.join("\n")}\n</svg>\n`;
    }
  }

  explorer.CanvasSurface = CanvasSurface;
  explorer.monoFont = kMono;
  explorer.SvgSurface = SvgSurface;
})();
