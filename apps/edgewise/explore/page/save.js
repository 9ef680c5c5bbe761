// Views as files: SVG and PNG. A picture is { width, height, paint(surface) }.
"use strict";
(function () {
  const explorer = (window.edgewiseExplorer = window.edgewiseExplorer || {});
  const kGap = 16, kCaption = 22;

  function download(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  explorer.svgOf = function (picture) {
    const surface = new explorer.SvgSurface(picture.width, picture.fileHeight ? picture.fileHeight() : picture.height);
    surface.rect(0, 0, surface.width, surface.height, explorer.colours().back);
    picture.paint(surface, true);
    return surface.finish();
  };
  explorer.canvasOf = function (picture, ratio = 2) {
    const canvas = document.createElement("canvas"), height = picture.fileHeight ? picture.fileHeight() : picture.height;
    const surface = new explorer.CanvasSurface(canvas, picture.width, height, ratio);
    surface.rect(0, 0, picture.width, height, explorer.colours().back);
    picture.paint(surface, true);
    return canvas;
  };
  explorer.saveSvg = (picture, name) => download(new Blob([explorer.svgOf(picture)], { type: "image/svg+xml" }), name + ".svg");
  explorer.savePng = (picture, name) => explorer.canvasOf(picture).toBlob((blob) => download(blob, name + ".png"), "image/png");

  // Two views side by side, each with its caption.
  explorer.twoPictures = function (views, captions) {
    const heights = views.map((view) => (view.fileHeight ? view.fileHeight() : view.height));
    return {
      width: views[0].width + kGap + views[1].width, height: Math.max(...heights) + kCaption,
      paint(surface) {
        views.forEach((view, n) => {
          surface.push(n * (views[0].width + kGap), 0);
          surface.text(8, 15, captions[n], { size: 13, bold: true, colour: explorer.colours().ink });
          surface.push(0, kCaption);
          view.paint(surface, true);
          surface.pop();
          surface.pop();
        });
      } };
  };
})();
