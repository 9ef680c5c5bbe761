// Colours of both themes, as text and as the words of ImageData.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});

  // From little to much. Lightness runs one way, so that they are read without colour too.
  const stops = {
    light: [[226, 236, 246], [158, 197, 228], [84, 148, 204], [32, 92, 158], [8, 38, 92]],
    dark: [[36, 44, 84], [88, 52, 140], [186, 60, 108], [246, 138, 60], [252, 240, 176]],
  };
  const plain = {
    light: { back: "#ffffff", ink: "#1d2530", soft: "#5c6773", line: "#d5dae0", faint: "#eef1f4", chosen: "#d9480f",
             incoming: "#b8007a", right: "#0a8f3c" },
    dark: { back: "#14171c", ink: "#e8ebef", soft: "#9aa4b0", line: "#38404a", faint: "#1e232a", chosen: "#ffa94d",
            incoming: "#ff7ac8", right: "#51d88a" },
  };
  // Okabe and Ito's, for curves.
  const series = { light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#3a8fc0", "#333333"],
                   dark: ["#56b4e9", "#e69f00", "#2fd6a4", "#f29fcb", "#f0e442", "#4f9fe0", "#dddddd"] };

  function mixed(theme, tone) {
    const list = stops[theme], at = Math.min(1, Math.max(0, tone)) * (list.length - 1);
    const below = Math.min(list.length - 2, Math.floor(at));
    return list[below].map((c, n) => Math.round(c + (at - below) * (list[below + 1][n] - c)));
  }
  const word = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

  explorer.theme = function () {
    const chosen = explorer.state.theme;
    if (chosen !== "auto") return chosen;
    const given = document.getElementById("explorer").dataset.given;  // by the page around it
    return given || (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  };
  explorer.colours = () => plain[explorer.theme()];
  explorer.seriesColour = (n) => series[explorer.theme()][n % series.light.length];
  explorer.tone = (tone) => "rgb(" + mixed(explorer.theme(), tone).join(",") + ")";
  explorer.palette = function () {
    const theme = explorer.theme(), palette = new Uint32Array(256);
    for (let n = 0; n < 256; ++n) palette[n] = word(mixed(theme, n / 255));
    return palette;
  };
  explorer.emptyWord = () => (explorer.theme() === "dark" ? word([20, 23, 28]) : word([255, 255, 255]));
  // Whether text on this tone is to be the light one.
  explorer.isDarkTone = (tone) => (explorer.theme() === "dark" ? tone < 0.7 : tone > 0.5);
})();
