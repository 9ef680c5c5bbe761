// Density of every head over training, with a line at the step that is shown. A click goes to the nearest
// snapshot.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kLeft = 54, kRight = 8, kTop = 22, kBottom = 22;

  class CurvesView {
    constructor(parent) {
      this.canvas = explorer.element("canvas", { className: "curves", ariaLabel: "density of every head over training" });
      parent.append(this.canvas);
      this.width = 0;
      this.height = 150;
      this.canvas.addEventListener("click", (event) => {
        const box = this.canvas.getBoundingClientRect(), scale = this.scale();
        if (!scale) return;
        const step = scale.low + ((event.clientX - box.left - kLeft) / scale.room) * (scale.high - scale.low);
        const { steps } = explorer.model.run;
        explorer.set({ step: steps.reduce((a, b) => (Math.abs(b - step) < Math.abs(a - step) ? b : a)) });
      });
    }
    resize(width) {
      this.width = width;
      this.draw();
    }
    scale() {
      const { run } = explorer.model;
      if (!run) return null;
      const all = run.densities.steps.concat(run.steps);
      const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), 0);
      let most = 1e-6;
      for (const curve of run.densities.heads) for (const value of curve) most = Math.max(most, value || 0);
      return { low, high: Math.max(high, low + 1), most, room: this.width - kLeft - kRight, tall: this.height - kTop - kBottom };
    }
    draw() {
      const { run } = explorer.model;
      this.canvas.hidden = run !== null && run.densities.steps.length === 0;  // of a snapshot without a run
      if (this.width < 1 || this.canvas.hidden) return;
      const surface = new explorer.CanvasSurface(this.canvas, this.width, this.height, Math.min(2, window.devicePixelRatio || 1));
      this.canvas.style.height = this.height + "px";
      surface.context.clearRect(0, 0, this.width, this.height);
      this.paint(surface);
    }
    paint(surface) {
      const scale = this.scale(), colours = explorer.colours();
      if (!scale) return;
      const { run } = explorer.model, { steps, heads } = run.densities;
      const x = (step) => kLeft + ((step - scale.low) / (scale.high - scale.low)) * scale.room;
      const y = (value) => kTop + (1 - value / scale.most) * scale.tall;
      surface.text(2, 12, "density in training", { colour: colours.soft, size: 12 });
      for (const part of [0, 0.5, 1]) {
        const at = y(part * scale.most);
        surface.line([[kLeft, at], [this.width - kRight, at]], colours.line);
        surface.text(kLeft - 5, at + 4, explorer.percent(part * scale.most), { colour: colours.soft, size: 11, anchor: "end" });
      }
      surface.text(kLeft, this.height - 5, String(scale.low), { colour: colours.soft, size: 11 });
      surface.text(this.width - kRight, this.height - 5, "step " + scale.high, { colour: colours.soft, size: 11, anchor: "end" });
      const chosen = explorer.state.layer * run.heads + explorer.state.head;
      const draw = (curve, n, width) => {
        let run_ = [];
        curve.forEach((value, at) => {
          if (value !== null) return run_.push([x(steps[at]), y(value)]);
          if (run_.length > 1) surface.line(run_, explorer.seriesColour(n), width);
          run_ = [];
        });
        if (run_.length > 1) surface.line(run_, explorer.seriesColour(n), width);
      };
      heads.forEach((curve, n) => { if (n !== chosen) draw(curve, n, 1); });
      if (heads[chosen]) draw(heads[chosen], chosen, 3);
      const { beside } = explorer.state, other = beside ? beside[1] * run.heads + beside[2] : -1;
      if (beside && beside[0] === 0 && heads[other] && other !== chosen) draw(heads[other], other, 2);
      for (const step of run.steps) surface.line([[x(step), this.height - kBottom], [x(step), this.height - kBottom + 4]], colours.soft);
      const at = x(Math.max(scale.low, explorer.state.step));
      surface.line([[at, kTop - 4], [at, this.height - kBottom]], colours.chosen, 1.5);
    }
  }

  explorer.CurvesView = CurvesView;
})();
