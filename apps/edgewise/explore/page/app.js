// Brings the parts together: what is chosen is loaded, and what is loaded is shown.
"use strict";
(function () {
  const explorer = window.edgewiseExplorer, { state, models, model } = explorer;
  const root = document.getElementById("explorer");
  explorer.isPart = explorer.data.isReport && !root.dataset.alone;  // of a page of somebody else

  root.replaceChildren();
  root.classList.add("explorer");
  const error = explorer.element("div", { className: "error", role: "alert", hidden: true });
  const side = explorer.element("aside", { className: "side", ariaLabel: "heads and densities" });
  const main = explorer.element("section", { className: "main" });
  const info = explorer.element("aside", { className: "info", ariaLabel: "figures and edges" });
  const views = (explorer.parts = {});
  const controls = (views.controls = new explorer.Controls(root, views));
  views.heads = new explorer.HeadsView(side);
  views.curves = new explorer.CurvesView(side);
  const halves = (explorer.sides = models.map((each) => new explorer.Half(main, info, each)));
  Object.assign(views, halves[0].views, { details: halves[0].details });
  const body = explorer.element("div", { className: "body" });
  body.append(side, main, info);
  root.append(error, body);

  explorer.painted = () => { if (!explorer.firstPicture && model.head) explorer.firstPicture = performance.now(); };

  function fail(problem) {
    error.textContent = problem.message;
    error.hidden = false;
    root.dataset.error = problem.message;
  }
  const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
  const nearest = (steps, step) => steps.reduce((a, b) => (Math.abs(b - step) < Math.abs(a - step) ? b : a));
  const runs = [];  // that there are: this one, and the one beside it

  // What the right side is of.
  function besidePlace() {
    const [run, layer, head, step] = state.beside, which = run < runs.length ? run : 0;
    return { prefix: which ? "beside/" : "", run: runs[which], at: nearest(runs[which].steps, step < 0 ? state.step : step), layer, head };
  }

  // The description of a step, and the addresses below it.
  async function describe(of, { prefix, run, at }) {
    const step = await explorer.data.json(prefix + "step/" + at), input = clamp(state.input, step.inputs.length);
    const about = step.inputs[input];
    if (!about) throw new Error("this snapshot has no inputs");
    of.run = run;
    return { step, input, about, address: prefix + "step/" + at + "/input/" + input };
  }
  async function headOf(of, { step, about, address, at, layer, head }) {
    const [input, graph] = await Promise.all([explorer.data.packed(address), explorer.data.packed(address + "/layer/" + layer + "/head/" + head)]);
    return () => {
      of.describe(at, step, about);
      of.take(layer, head, input, graph);
    };
  }

  // Loads what the state asks for; what is asked for meanwhile is loaded next, and what came too late is dropped.
  let asked = 0, running = Promise.resolve();
  explorer.settled = () => running;
  async function load(turn) {
    const { run } = model;
    if (!run.steps.includes(state.step)) explorer.set({ step: run.steps[run.steps.length - 1] });
    const found = await describe(model, { prefix: "", run, at: state.step }), { step, input, about } = found;
    if (turn !== asked) return;
    const layer = clamp(state.layer, about.layers.length), heads = about.layers.length ? about.layers[layer].heads.length : 0;
    if (input !== state.input || layer !== state.layer || clamp(state.head, heads) !== state.head)
      explorer.set({ input, layer, head: clamp(state.head, heads) });
    const isNew = model.about !== about;
    model.describe(state.step, step, about);
    controls.showStep(step);
    if (isNew) views.heads.show(about);
    views.heads.mark();
    controls.mark();
    if (heads === 0) throw new Error("this layer is dense, and the input too long to show all of its pairs");
    const take = await headOf(model, Object.assign(found, { at: state.step, layer, head: state.head }));
    if (turn !== asked) return;
    take();
    error.hidden = true;
    delete root.dataset.error;
    halves[0].show();
    root.dataset.shown = [state.step, state.input, state.layer, state.head].join(" ");
    if (state.beside) await loadBeside(turn);
    const thumbnails = explorer.data.has(found.address + "/thumbnails") ? await explorer.data.packed(found.address + "/thumbnails") : null;
    if (turn === asked) views.heads.draw(thumbnails);
  }
  async function loadBeside(turn) {
    const second = models[1], place = besidePlace(), found = await describe(second, place), { about } = found;
    const layer = clamp(place.layer, about.layers.length), head = about.layers.length ? clamp(place.head, about.layers[layer].heads.length) : 0;
    if (!about.layers.length || !about.layers[layer].heads.length) throw new Error("the layer on the right is dense, and the input too long to show all of its pairs");
    const take = await headOf(second, Object.assign(found, { at: place.at, layer, head }));
    if (turn !== asked || !state.beside) return;
    take();
    halves[1].showLists(runs);
    halves[1].show();
    root.dataset.beside = [runs.indexOf(place.run), place.at, layer, head].join(" ");
  }
  function reload() {
    const turn = ++asked;
    running = load(turn).catch((problem) => { if (turn === asked) fail(problem); });
  }

  function retheme() {
    root.dataset.theme = explorer.theme();
    if (!explorer.isPart) document.documentElement.dataset.theme = explorer.theme();
    views.curves.draw();
    views.heads.draw(views.heads.thumbnails);
    for (const half of halves) half.retheme();
  }
  function showView() {
    const isOpen = state.beside !== null;
    main.classList.toggle("two", isOpen);
    if (!isOpen) delete root.dataset.beside;
    for (const half of halves) {
      half.open(isOpen);
      half.showView(state.view);
    }
    controls.mark();
    measure();
  }
  function measure() {
    for (const half of halves) half.measure(state.view);
    if (views.curves.width !== side.clientWidth - 24) views.curves.resize(side.clientWidth - 24);
  }

  explorer.onChange((changed) => {
    if (!model.run) return;
    const has = (...names) => names.some((name) => changed.has(name));
    if (has("theme")) retheme();
    if (has("view", "beside")) showView();
    if (has("step", "layer", "head", "beside")) views.curves.draw();
    if (has("beside")) views.heads.mark();
    if (has("step", "input", "layer", "head", "beside")) return reload();
    if (has("colour", "arrange")) controls.mark();
    for (const half of halves) {
      if (!half.model.head || (half.model.which > 0 && !state.beside)) continue;
      if (has("colour", "zoom")) half.views.matrix.ask();
      if (has("arrange")) half.views.graph.show();
      if (has("place")) half.views.graph.draw();
      if (has("token", "side")) half.showToken();
    }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  const watcher = new ResizeObserver(measure);
  for (const half of halves) watcher.observe(half.stage);

  explorer.data.json("run").then(async (run) => {
    runs.push(run);
    if (run.beside) runs.push(await explorer.data.json("beside/run"));
    model.run = run;
    controls.showRun();
    if (run.steps.length === 0) throw new Error("this run has no snapshots; train it with train.snapshot_every");
    retheme();
    if (!run.steps.includes(state.step)) state.step = run.steps[run.steps.length - 1];
    showView();
    views.curves.draw();
    reload();
  }).catch(fail);
})();
