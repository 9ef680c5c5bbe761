// The bar on top, the keyboard, and the help that lists its keys.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});

  explorer.element = function (name, properties) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "role") element.setAttribute("role", value);
      else if (key === "ariaLabel") element.setAttribute("aria-label", value);
      else element[key] = value;
    }
    return element;
  };
  explorer.number = (value) => (value >= 0.01 || value === 0 ? value.toFixed(3) : value.toExponential(1));
  explorer.percent = (value) => (100 * value).toFixed(value < 0.0995 ? 2 : value >= 0.9995 ? 0 : 1) + "\u202f%";
  explorer.count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");

  const viewNames = { matrix: "Matrix", input: "Input", graph: "Graph", clusters: "Clusters" };
  const arrangementNames = { auto: "arrange", given: "by the input", head: "by the head", ring: "in a ring" };
  const colourNames = { weight: "by weight", edges: "by edges a pixel", query: "by query degree", key: "by key degree" };

  const keys = [
    ["\u2190 \u2192 \u2191 \u2193", "another head, another layer"], [", .", "an earlier or later step"], ["space", "play the steps"],
    ["p n", "another input"], ["m i g c", "matrix, input, graph, clusters"], ["w", "another colour"], ["a", "another arrangement of the graph"],
    ["b", "two heads side by side, or one"], ["x", "exchange left and right"], ["Shift and click on a head", "show it on the right"],
    ["+ \u2212 0", "zoom in, out, all of it"], ["Shift with arrows", "move the matrix or graph"],
    ["j k", "next and previous token"], ["Esc", "no token"], ["t", "light, dark, as the system"], ["s", "save as SVG"], ["?", "this help"]];

  class Controls {
    constructor(parent, views) {
      this.views = views;
      this.bar = explorer.element("header", {});
      this.title = explorer.element("h1", {});
      this.about = explorer.element("span", { className: "about" });
      this.play = this.button("\u25b6", "play the steps (space)", () => this.togglePlay());
      this.slider = explorer.element("input", { type: "range", min: 0, max: 0, value: 0, ariaLabel: "training step" });
      this.slider.addEventListener("input", () => explorer.set({ step: explorer.model.run.steps[this.slider.value] }));
      this.step = explorer.element("output", {});
      this.input = explorer.element("select", { ariaLabel: "input", className: "input-list" });
      this.input.addEventListener("change", () => explorer.set({ input: Number(this.input.value), token: -1, zoom: null }));
      this.tabs = explorer.element("div", { className: "tabs", role: "tablist" });
      this.tabButtons = explorer.views.map((view) => {
        const tab = this.button(viewNames[view], "view", () => explorer.set({ view }));
        tab.setAttribute("role", "tab");
        tab.dataset.view = view;
        return tab;
      });
      this.tabs.append(...this.tabButtons);
      this.colour = explorer.element("select", { ariaLabel: "colour" });
      for (const mode of explorer.colourModes) this.colour.append(explorer.element("option", { value: mode, textContent: colourNames[mode] }));
      this.colour.addEventListener("change", () => explorer.set({ colour: this.colour.value }));
      this.arrange = explorer.element("select", { ariaLabel: "arrangement of the graph" });
      for (const kind of explorer.arrangements) this.arrange.append(explorer.element("option", { value: kind, textContent: arrangementNames[kind] }));
      this.arrange.addEventListener("change", () => explorer.set({ arrange: this.arrange.value, place: null }));
      this.beside = this.button("\u25eb", "two heads side by side (b)", () => this.toggleBeside());
      const zoom = [this.button("+", "zoom in (+)", () => this.zoom(1.6)), this.button("\u2212", "zoom out (-)", () => this.zoom(1 / 1.6)),
                    this.button("fit", "all of it (0)", () => explorer.set({ zoom: null, place: null }))];
      this.what = explorer.element("select", { ariaLabel: "what to save", title: "what to save" });
      for (const [value, textContent] of [["view", "this view"], ["curves", "densities"], ["heads", "all heads"], ["degrees", "degrees"]])
        this.what.append(explorer.element("option", { value, textContent }));
      const save = [this.what, this.button("SVG", "save as SVG (s)", () => this.save("svg")), this.button("PNG", "save as PNG", () => this.save("png"))];
      this.theme = this.button("\u25d0", "light, dark, as the system (t)", () => this.nextTheme());
      const group = (...parts) => { const box = explorer.element("div", { className: "group" }); box.append(...parts); return box; };
      this.zoomGroup = group(...zoom);
      this.bar.append(group(this.title, this.about), group(this.play, this.slider, this.step), group(this.input), this.tabs,
                      group(this.colour, this.arrange), this.zoomGroup, group(this.beside), group(...save), group(this.theme, this.button("?", "keys (?)", () => this.help())));
      this.dialog = explorer.element("dialog", {});
      const table = explorer.element("table", {});
      for (const [key, does] of keys) {
        const row = table.insertRow();
        row.insertCell().append(explorer.element("kbd", { textContent: key }));
        row.insertCell().textContent = does;
      }
      this.dialog.append(explorer.element("h2", { textContent: "Keys" }), table,
                         explorer.element("p", { textContent: "The address of the page keeps the view: a link opens the same." }),
                         this.button("close", "close", () => this.dialog.close()));
      // Until the page is drawn again its button keeps the focus, and would take the next space.
      this.dialog.addEventListener("close", () => { if (this.dialog.contains(document.activeElement)) document.activeElement.blur(); });
      parent.append(this.bar, this.dialog);
      document.addEventListener("keydown", (event) => this.key(event));
    }
    button(text, title, action) {
      const button = explorer.element("button", { type: "button", textContent: text, title });
      button.addEventListener("click", action);
      return button;
    }

    showRun() {
      const { run } = explorer.model;
      this.title.textContent = run.name;
      this.title.title = run.name + ", " + run.task + (run.attention ? ", " + run.attention : "");
      this.about.title = this.about.textContent = run.task + (run.attention ? ", " + run.attention : "") + (run.unit > 1 ? ", squares of 16" : "");
      document.title = explorer.isPart ? document.title : run.name + " \u2013 edgewise explore";
      this.slider.max = Math.max(0, run.steps.length - 1);
    }
    showStep(step) {
      const { run } = explorer.model;
      this.slider.value = run.steps.indexOf(explorer.state.step);
      this.step.textContent = "step " + explorer.state.step;
      this.input.replaceChildren(...step.inputs.map((input, n) => explorer.element("option", {
        value: n, textContent: (input.name || "example " + input.example) + (input.tower ? ", second" : "") + " (" + input.length + (step.task === "graph" ? " nodes)" : " tokens)") })));
    }
    mark() {
      const { view, colour, input } = explorer.state;
      for (const tab of this.tabButtons) tab.setAttribute("aria-selected", String(tab.dataset.view === view));
      this.colour.value = colour;
      this.input.value = input;
      this.zoomGroup.hidden = view !== "matrix" && view !== "graph";
      this.colour.hidden = view !== "matrix";
      this.arrange.hidden = view !== "graph";
      this.arrange.value = explorer.state.arrange;
      this.beside.setAttribute("aria-pressed", String(explorer.state.beside !== null));
    }

    zoomable() { return this.views[explorer.state.view === "graph" ? "graph" : "matrix"]; }
    zoom(factor) {
      if (!explorer.model.head) return;
      const view = this.zoomable(), { width, height } = view.area ? view.area() : view;
      view.zoomAt(width / 2, height / 2, factor);
    }
    // What is to be saved, as a picture; both sides where there are two.
    picture() {
      const { view, beside } = explorer.state, what = this.what.value, [first, second] = explorer.sides;
      if (what === "curves") return this.views.curves;
      if (what === "heads") return this.views.heads.picture();
      if (what === "degrees") return this.views.details.degreesPicture();
      if (!beside || !second.model.head) return this.views[view];
      return explorer.twoPictures([first.views[view], second.views[view]], [first.model.caption(), second.model.caption()]);
    }
    save(kind) {
      if (!explorer.model.head) return;
      const { view, step, layer, head } = explorer.state, what = this.what.value === "view" ? view : this.what.value;
      const name = what + (what === "curves" ? "" : "-step-" + step) + (what === "heads" || what === "curves" ? "" : "-layer-" + layer + "-head-" + head);
      (kind === "svg" ? explorer.saveSvg : explorer.savePng)(this.picture(), name);
    }
    // To begin with: the same head in the other run, else the next head.
    toggleBeside() {
      const { beside, layer, head } = explorer.state, { run, about } = explorer.model;
      if (beside) return explorer.set({ beside: null });
      if (!about) return;
      explorer.set({ beside: run.beside ? [1, layer, head, -1] : [0, layer, (head + 1) % Math.max(1, about.layers[layer].heads.length), -1] });
    }
    // Only heads of one run can change sides.
    exchange() {
      const { beside, layer, head, step } = explorer.state;
      if (!beside || beside[0] === 1) return;
      explorer.set({ layer: beside[1], head: beside[2], step: beside[3] < 0 ? step : beside[3], beside: [0, layer, head, beside[3] < 0 ? -1 : step] });
    }
    nextTheme() {
      const order = ["auto", "light", "dark"];
      explorer.set({ theme: order[(order.indexOf(explorer.state.theme) + 1) % 3] });
    }
    help() { if (this.dialog.open) this.dialog.close(); else this.dialog.showModal(); }
    moveStep(by) {
      const { steps } = explorer.model.run, at = steps.indexOf(explorer.state.step) + by;
      if (at >= 0 && at < steps.length) explorer.set({ step: steps[at] });
      return at + by < steps.length;
    }
    // One step after the other, each when the one before is drawn.
    togglePlay() {
      this.playing = !this.playing;
      this.play.textContent = this.playing ? "\u275a\u275a" : "\u25b6";
      if (!this.playing) return;
      const { steps } = explorer.model.run;
      if (explorer.state.step === steps[steps.length - 1]) explorer.set({ step: steps[0] });
      const next = async () => {
        await explorer.settled();
        if (!this.playing) return;
        if (!this.moveStep(1)) return this.togglePlay();
        setTimeout(next, 500);
      };
      setTimeout(next, 500);
    }

    key(event) {
      const of = event.target.tagName, { run, step, about } = explorer.model;
      if (event.ctrlKey || event.altKey || event.metaKey || !run) return;
      if (of === "SELECT" || of === "INPUT" || (of === "BUTTON" && event.key === " ") || (this.dialog.open && event.key !== "?")) return;
      if (explorer.isPart && !document.getElementById("explorer").contains(event.target)) return;
      const { state } = explorer, cycle = (list, now) => list[(list.indexOf(now) + 1) % list.length];
      // Nothing of these where a step could not be read; another step still can be chosen.
      const layers = about ? about.layers.length : 0, heads = layers ? about.layers[Math.min(state.layer, layers - 1)].heads.length : 0;
      const wrap = (value, count) => (value + count) % Math.max(1, count);
      const input = (by) => explorer.set({ input: wrap(state.input + by, step ? step.inputs.length : 0), token: -1, zoom: null });
      const token = (by) => explorer.set({ token: wrap(Math.max(state.token, by < 0 ? 0 : -1) + by, explorer.model.head ? explorer.model.sides[state.side].length : 0) });
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const actions = {
        ",": () => this.moveStep(-1), ".": () => this.moveStep(1), " ": () => this.togglePlay(), n: () => input(1), p: () => input(-1),
        m: () => explorer.set({ view: "matrix" }), i: () => explorer.set({ view: "input" }), g: () => explorer.set({ view: "graph" }), c: () => explorer.set({ view: "clusters" }),
        w: () => explorer.set({ colour: cycle(explorer.colourModes, state.colour) }), "+": () => this.zoom(1.6), "=": () => this.zoom(1.6),
        "-": () => this.zoom(1 / 1.6), 0: () => explorer.set({ zoom: null, place: null }), b: () => this.toggleBeside(), x: () => this.exchange(),
        a: () => explorer.set({ arrange: cycle(explorer.arrangements, state.arrange), place: null }), j: () => token(1), k: () => token(-1),
        Escape: () => explorer.set({ token: -1 }), t: () => this.nextTheme(), s: () => this.save("svg"), "?": () => this.help() };
      const arrow = arrows[event.key];
      if (arrow && !heads) return;
      if (arrow && event.shiftKey) this.zoomable().pan(arrow[0] * 60, arrow[1] * 60);
      else if (arrow) explorer.set({ head: wrap(state.head + arrow[0], heads), layer: wrap(state.layer + arrow[1], layers) });
      else if (actions[event.key]) actions[event.key]();
      else return;
      event.preventDefault();
    }
  }

  explorer.Controls = Controls;
})();
