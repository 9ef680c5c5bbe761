// What is being looked at. It stands in the address behind #, so that a link opens the same view.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});

  const views = ["matrix", "input", "graph", "clusters"], colours = ["weight", "edges", "query", "key"];
  const arrangements = ["auto", "given", "head", "ring"];
  // beside: [run, layer, head, step] of what stands on the right, step -1 = that of the left; null = nothing.
  // zoom is of the matrix, place of the graph: [x, y, scale].
  const start = { step: -1, input: 0, layer: 0, head: 0, view: "matrix", colour: "weight", token: -1, side: "query",
                  zoom: null, theme: "auto", beside: null, arrange: "auto", place: null };
  const state = Object.assign({}, start);
  const listeners = [];

  const whole = (text, fallback) => (/^\d{1,15}$/.test(text) ? Number(text) : fallback);
  const among = (names, text, fallback) => (names.includes(text) ? text : fallback);

  function zoomOf(text) {
    const numbers = (text || "").split(",").map(Number);
    return numbers.length === 3 && numbers.every(Number.isFinite) && numbers[2] > 0 ? numbers : null;
  }
  function besideOf(text) {
    const parts = text.split(",");
    if (parts.length !== 4 || !parts.every((part) => /^(-1|\d{1,15})$/.test(part))) return null;
    const [run, layer, head, step] = parts.map(Number);
    return run < 0 || run > 1 || layer < 0 || head < 0 ? null : [run, layer, head, step];
  }

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const get = (name) => given.get(name) || "";
    Object.assign(state, start, {
      step: whole(get("step"), -1), input: whole(get("input"), 0), layer: whole(get("layer"), 0),
      head: whole(get("head"), 0), view: among(views, get("view"), "matrix"),
      colour: among(colours, get("colour"), "weight"), token: whole(get("token"), -1),
      side: among(["query", "key"], get("side"), "query"), zoom: zoomOf(get("zoom")),
      theme: among(["auto", "light", "dark"], get("theme"), "auto"), beside: besideOf(get("beside")),
      arrange: among(arrangements, get("arrange"), "auto"), place: zoomOf(get("place")) });
  }

  function write() {
    const said = new URLSearchParams();
    for (const name of Object.keys(start)) {
      const value = state[name];
      if (value === start[name] || value === null) continue;
      said.set(name, Array.isArray(value) ? value.map((x) => +x.toFixed(3)).join(",") : String(value));
    }
    try {
      history.replaceState(null, "", "#" + said.toString().replaceAll("%2C", ","));
    } catch (error) { /* in a frame without an address: the view just has no link */ }
  }

  let writing = 0;
  explorer.state = state;
  explorer.views = views;
  explorer.colourModes = colours;
  explorer.arrangements = arrangements;
  explorer.onChange = (listener) => listeners.push(listener);
  explorer.set = function (changes) {
    const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
    if (changed.length === 0) return;
    Object.assign(state, changes);
    clearTimeout(writing);  // browsers limit how often an address may change
    writing = setTimeout(write, 120);
    for (const listener of listeners) listener(new Set(changed));
  };
  window.addEventListener("hashchange", () => {
    const before = Object.assign({}, state);
    read();
    const changed = Object.keys(start).filter((name) => String(before[name]) !== String(state[name]));
    if (changed.length) for (const listener of listeners) listener(new Set(changed));
  });
  read();
})();
