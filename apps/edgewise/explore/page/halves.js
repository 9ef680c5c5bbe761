// The left and the right of the page: the views of one model each, under a line that says of what. The right has lists
// to choose its run, head and step from.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});

  class Half {
    constructor(parent, info, model) {
      this.model = model;
      this.box = explorer.element("div", { className: "half", hidden: model.which > 0 });
      this.caption = explorer.element("div", { className: "caption", hidden: true });
      this.panes = {};
      this.stage = explorer.element("div", { className: "stage" });
      for (const view of explorer.views) this.stage.append((this.panes[view] = explorer.element("div", { className: "pane" })));
      this.box.append(this.caption, this.stage);
      parent.append(this.box);
      this.views = { matrix: new explorer.MatrixView(this.panes.matrix, model), input: new explorer.InputView(this.panes.input, model),
                     graph: new explorer.GraphView(this.panes.graph, model), clusters: new explorer.ClustersView(this.panes.clusters, model) };
      const details = explorer.element("section", { hidden: model.which > 0 });
      info.append(details);
      this.details = new explorer.DetailsView(details, model);
      this.detailsBox = details;
      if (model.which > 0) this.listen();
    }

    listen() {
      const list = (ariaLabel, change) => {
        const select = explorer.element("select", { ariaLabel });
        select.addEventListener("change", () => change(select.value));
        return select;
      };
      const set = (changes) => {
        const [run, layer, head, step] = explorer.state.beside, now = Object.assign({ run, layer, head, step }, changes);
        explorer.set({ beside: [now.run, now.layer, now.head, now.step] });
      };
      this.run = list("run on the right", (value) => set({ run: Number(value), step: -1 }));
      this.place = list("head on the right", (value) => { const [layer, head] = value.split(".").map(Number); set({ layer, head }); });
      this.step = list("step on the right", (value) => set({ step: Number(value) }));
      this.close = explorer.element("button", { type: "button", textContent: "\u00d7", title: "one side alone (b)" });
      this.close.addEventListener("click", () => explorer.set({ beside: null }));
      this.caption.append(this.place, this.step, this.run, this.close);
    }

    // What the lists offer, and what is chosen of it.
    showLists(runs) {
      const { beside } = explorer.state, option = (value, textContent) => explorer.element("option", { value, textContent });
      const { about, run } = this.model;
      this.run.hidden = runs.length < 2;
      this.run.replaceChildren(...runs.map((each, n) => option(n, each.name)));
      this.run.value = beside[0];
      this.step.replaceChildren(option(-1, "same step"), ...run.steps.map((step) => option(step, "step " + step)));
      this.step.value = beside[3];
      const heads = [];
      about.layers.forEach((layer, l) => layer.heads.forEach((_, h) => heads.push(option(l + "." + h, this.model.layerName(l) + ", head " + h))));
      this.place.replaceChildren(...heads);
      this.place.value = this.model.layer + "." + this.model.headNumber;
    }

    show() {
      if (this.model.which === 0) this.caption.textContent = this.model.caption();
      for (const view of Object.values(this.views)) view.show();
      this.details.show();
    }
    // Whether there are two.
    open(isOpen) {
      this.caption.hidden = !isOpen;
      if (this.model.which > 0) this.box.hidden = this.detailsBox.hidden = !isOpen;
      this.details.caption.hidden = !isOpen;
    }
    showView(view) {
      for (const [name, pane] of Object.entries(this.panes)) pane.hidden = name !== view;
    }
    measure(view) {
      const { clientWidth, clientHeight } = this.stage, shown = this.views[view];
      if (clientWidth > 0 && (shown.width !== clientWidth || shown.height !== clientHeight || shown.isStale)) shown.resize(clientWidth, clientHeight);
    }
    showToken() {
      for (const view of Object.values(this.views)) view.draw();
      this.details.showToken();
    }
    retheme() {
      this.views.matrix.ask();
      this.views.input.draw();
      this.views.graph.draw();
      this.views.clusters.draw();
      if (this.model.head) this.details.drawHistogram();
    }
  }

  explorer.Half = Half;
})();
