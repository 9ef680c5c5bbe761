// Where the page has its data from: the server's /api/, or, in a report, the page itself.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kMostKept = 48;
  const kept = new Map();  // address -> promise, the oldest first

  const embedded = new Map();
  for (const script of document.querySelectorAll("script[data-explorer]"))
    embedded.set(script.dataset.explorer, script);
  const isReport = embedded.size > 0;

  async function unzipped(text) {
    const binary = atob(text), bytes = new Uint8Array(binary.length);
    for (let n = 0; n < binary.length; ++n) bytes[n] = binary.charCodeAt(n);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  async function fetched(address) {
    if (isReport) {
      const script = embedded.get(address);
      if (!script) throw new Error("this report does not hold it; edgewise explore RUN shows every head and step");
      return unzipped(script.textContent);
    }
    const response = await fetch("api/" + address);
    if (response.ok) return response.arrayBuffer();
    let reason = "the server answered " + response.status;
    try { reason = (await response.json()).error; } catch (error) { /* no JSON: the status has to do */ }
    throw new Error(reason);
  }

  function remembered(address, read) {
    let promise = kept.get(address);
    if (promise) kept.delete(address);
    else promise = fetched(address).then(read).catch((error) => { kept.delete(address); throw error; });
    kept.set(address, promise);
    if (kept.size > kMostKept) kept.delete(kept.keys().next().value);
    return promise;
  }

  // Every float16 as the number it is.
  let halves = null;
  function fromHalves(words) {
    if (!halves) {
      halves = new Float32Array(65536);
      for (let word = 0; word < 65536; ++word) {
        const exponent = (word >> 10) & 31, fraction = word & 1023, sign = word & 0x8000 ? -1 : 1;
        halves[word] = sign * (exponent === 0 ? fraction * 2 ** -24
          : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
      }
    }
    const result = new Float32Array(words.length);
    for (let n = 0; n < words.length; ++n) result[n] = halves[words[n]];
    return result;
  }

  const types = { i32: Int32Array, f32: Float32Array, f16: Uint16Array, u8: Uint8Array };

  // apps/edgewise/explore/packed.h: { meta, name: array, ... }
  function unpacked(buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const { meta, parts } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    const result = { meta };
    let place = 4 + size;
    for (const part of parts) {
      const type = types[part.type], array = new type(buffer, place, part.count);
      result[part.name] = part.type === "f16" ? fromHalves(array) : array;
      place += Math.ceil(array.byteLength / 8) * 8;
    }
    return result;
  }

  explorer.data = {
    isReport,
    has: (address) => !isReport || embedded.has(address),
    json: (address) => remembered(address, (buffer) => JSON.parse(new TextDecoder().decode(buffer))),
    packed: (address) => remembered(address, unpacked),
    // A Worker that runs one of the page's scripts; in a file of its own the script is there as text.
    worker(name) {
      const script = document.getElementById("explorer-" + name);
      if (!script) return new Worker(name);
      const address = URL.createObjectURL(new Blob([script.textContent], { type: "text/javascript" }));
      return new Worker(address);
    },
  };
})();
