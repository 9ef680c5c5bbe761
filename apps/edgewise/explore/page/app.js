// Brings the parts together: what is chosen is loaded, and what is loaded is shown.
"use strict";
(function () {
  const explorer = window.edgewiseExplorer, raster = window.edgewiseRaster, { state } = explorer;
  const root = document.getElementById("explorer");
  const model = (explorer.model = { run: null, step: null, about: null, input: null, head: null, degrees: null, right: null,
                                    length: 0, task: "", names: [], hasNames: false, pictureWidth: 0 });

  root.replaceChildren();
  root.classList.add("explorer");
  const error = explorer.element("div", { className: "error", role: "alert", hidden: true });
  const side = explorer.element("aside", { className: "side", ariaLabel: "heads and densities" });
  const main = explorer.element("section", { className: "main" });
  const panes = { matrix: explorer.element("div", { className: "pane" }), input: explorer.element("div", { className: "pane" }),
                  clusters: explorer.element("div", { className: "pane" }) };
  const info = explorer.element("aside", { className: "info", ariaLabel: "figures and edges" });
  const views = (explorer.parts = {});
  const controls = new explorer.Controls(root, views);
  views.heads = new explorer.HeadsView(side);
  views.curves = new explorer.CurvesView(side);
  views.matrix = new explorer.MatrixView(panes.matrix);
  views.input = new explorer.InputView(panes.input);
  views.clusters = new explorer.ClustersView(panes.clusters);
  views.details = new explorer.DetailsView(info);
  const body = explorer.element("div", { className: "body" });
  main.append(...Object.values(panes));
  body.append(side, main, info);
  root.append(error, body);

  explorer.tokenName = function (n) {
    const id = model.input && model.input.tokens ? model.input.tokens[n] : undefined;
    if (id === undefined) return String(n);
    return model.names[id] !== undefined ? model.names[id] : String(id);
  };
  // "token 12: [MAX", "pixel 3, 14", "tokens 32 to 47".
  explorer.nodeName = function (node, unit) {
    if (unit > 1) return "tokens " + node * unit + " to " + Math.min(model.length - 1, (node + 1) * unit - 1);
    if (model.pictureWidth > 0 && node < model.length) {
      const place = model.input && model.input.positions ? model.input.positions[node] : node;
      return "pixel " + Math.floor(place / model.pictureWidth) + ", " + (place % model.pictureWidth);
    }
    if (node >= model.length) return "node " + node;
    return "token " + node + (model.input && model.input.tokens ? ": " + explorer.tokenName(node) : "");
  };
  explorer.painted = () => { if (!explorer.firstPicture && model.head) explorer.firstPicture = performance.now(); };
  const transposes = new WeakMap();
  explorer.transposedOf = function (graph) {
    if (!transposes.has(graph)) transposes.set(graph, raster.transposed(graph));
    return transposes.get(graph);
  };

  function fail(problem) {
    error.textContent = problem.message;
    error.hidden = false;
    root.dataset.error = problem.message;
  }
  const pathOf = () => "step/" + state.step + "/input/" + state.input;

  function graphOf(packed) {
    const { meta } = packed;
    return { meta, unit: meta.unit, queries: meta.queries, keys: meta.keys, offsets: packed.offsets, columns: packed.keys,
             weights: packed.weights || null, query_membership: packed.query_membership, key_side: packed.key_side,
             block_matrix: packed.block_matrix };
  }

  // Loads what the state asks for; what is asked for meanwhile is loaded next, and what came too late is dropped.
  let asked = 0, running = Promise.resolve();
  explorer.settled = () => running;
  async function load(turn) {
    const { run } = model;
    if (!run.steps.includes(state.step)) explorer.set({ step: run.steps[run.steps.length - 1] });
    const step = await explorer.data.json("step/" + state.step);
    if (turn !== asked) return;
    const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
    const input = clamp(state.input, step.inputs.length), about = step.inputs[input];
    if (!about) throw new Error("this snapshot has no inputs");
    const layer = clamp(state.layer, about.layers.length), heads = about.layers.length ? about.layers[layer].heads.length : 0;
    if (input !== state.input || layer !== state.layer || clamp(state.head, heads) !== state.head)
      explorer.set({ input, layer, head: clamp(state.head, heads) });
    const isNew = model.about !== about;
    Object.assign(model, { step, about, length: about.length, task: step.task, names: step.token_names,
                           hasNames: step.token_names.length > 0, pictureWidth: step.picture_width });
    controls.showStep();
    if (isNew) views.heads.show(about);
    views.heads.mark();
    controls.mark();
    if (heads === 0) throw new Error("this layer is dense, and the input too long to show all of its pairs");
    const parts = await Promise.all([explorer.data.packed(pathOf()), explorer.data.packed(pathOf() + "/layer/" + state.layer + "/head/" + state.head)]);
    if (turn !== asked) return;
    const graph = graphOf(parts[1]), right = parts[0].right_offsets;
    Object.assign(model, { input: parts[0], head: graph, degrees: raster.degrees(graph),
                           right: right ? { offsets: right, columns: parts[0].right_keys, queries: right.length - 1 } : null });
    error.hidden = true;
    delete root.dataset.error;
    views.matrix.show(graph);
    views.input.show();
    views.clusters.show();
    views.details.show();
    root.dataset.shown = [state.step, state.input, state.layer, state.head].join(" ");
    const thumbnails = explorer.data.has(pathOf() + "/thumbnails") ? await explorer.data.packed(pathOf() + "/thumbnails") : null;
    if (turn === asked) views.heads.draw(thumbnails);
  }
  function reload() {
    const turn = ++asked;
    running = load(turn).catch((problem) => { if (turn === asked) fail(problem); });
  }

  function retheme() {
    root.dataset.theme = explorer.theme();
    if (!explorer.data.isReport) document.documentElement.dataset.theme = explorer.theme();
    views.curves.draw();
    views.heads.draw(views.heads.thumbnails);
    views.matrix.ask();
    views.input.draw();
    views.clusters.draw();
    if (model.head) views.details.drawHistogram();
  }
  function showView() {
    for (const [name, pane] of Object.entries(panes)) pane.hidden = name !== state.view;
    controls.mark();
    measure();
  }
  function measure() {
    const { clientWidth, clientHeight } = main;
    if (views[state.view].width !== clientWidth || views[state.view].height !== clientHeight)
      views[state.view].resize(clientWidth, clientHeight);
    if (views.curves.width !== side.clientWidth - 24) views.curves.resize(side.clientWidth - 24);
  }

  explorer.onChange((changed) => {
    if (!model.run) return;
    const has = (...names) => names.some((name) => changed.has(name));
    if (has("theme")) retheme();
    if (has("view")) showView();
    if (has("step", "layer", "head")) views.curves.draw();
    if (has("step", "input", "layer", "head")) return reload();
    if (has("colour")) controls.mark();
    if (has("colour", "zoom") && model.head) views.matrix.ask();
    if (has("token", "side") && model.head) {
      views.matrix.draw();
      views.input.draw();
      views.clusters.draw();
      views.details.showToken();
    }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  new ResizeObserver(measure).observe(main);

  explorer.data.json("run").then((run) => {
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
