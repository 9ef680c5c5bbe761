"""Pictures for the examples as SVG, without packages: matrices of edges and curves, side by side."""

from pathlib import Path

BLUE, ORANGE, GREEN, INK = "#0072b2", "#d55e00", "#009e73", "#333333"
COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9")
PANEL, GAP, TOP, LEFT = 260, 66, 34, 46


class Page:
    """Panels in a row."""

    def __init__(self, panels: int):
        self.width, self.height = LEFT + panels * PANEL + (panels - 1) * GAP + 16, TOP + PANEL + 46
        self.parts, self.panels = [], 0

    def _panel(self, title: str) -> float:
        x = LEFT + self.panels * (PANEL + GAP)
        self.panels += 1
        self._text(x + PANEL / 2, TOP - 12, title, bold=True)
        self.parts.append(f'<rect x="{x}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="#fafafa" stroke="#cccccc"/>')
        return x

    def _text(self, x, y, text, anchor="middle", bold=False, fill=INK, turn=False):
        weight = ' font-weight="600"' if bold else ""
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
        safe = str(text).replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{fill}"{weight}{turned}>'
                          f'{safe}</text>')

    def matrix(self, title: str, dense, below: str = "key") -> None:
        """dense: [L, S] bool, rows are queries."""
        x, rows = self._panel(title), dense.tolist()
        size = PANEL / max(len(rows), 1)
        for i, row in enumerate(rows):
            for j, inside in enumerate(row):
                if inside:
                    self.parts.append(f'<rect x="{x + j * size:.2f}" y="{TOP + i * size:.2f}" width="{size:.2f}" '
                                      f'height="{size:.2f}" fill="{BLUE}"/>')
        self._text(x + PANEL / 2, TOP + PANEL + 18, below)
        self._text(x - 10, TOP + PANEL / 2, "query", turn=True)

    def curves(self, title: str, lines: dict[str, list[tuple[float, float]]], x_label: str, y_label: str = "",
               dots: bool = False, y_range: tuple[float, float] | None = None) -> None:
        """lines: name -> points (x, y)."""
        x0 = self._panel(title)
        xs, ys = zip(*(point for points in lines.values() for point in points))
        low_x, high_x = min(xs), max(xs)
        low_y, high_y = y_range or (min(0.0, min(ys)), max(ys))
        place = lambda x, y: (x0 + (x - low_x) / ((high_x - low_x) or 1) * PANEL,
                              TOP + PANEL - (y - low_y) / ((high_y - low_y) or 1) * PANEL)
        for number, (name, points) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            at = [place(*point) for point in sorted(points)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
            self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
            if dots:
                self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>' for x, y in at]
            self._text(x0 + PANEL - 8, TOP + PANEL - 12 - 16 * (len(lines) - 1 - number), name, "end", fill=colour)
        for value, y in ((high_y, TOP + 10), (low_y, TOP + PANEL)):
            self._text(x0 - 5, y, f"{value:.3g}", "end")
        for value, x in ((low_x, x0), (high_x, x0 + PANEL)):
            self._text(x, TOP + PANEL + 16, f"{value:.3g}")
        self._text(x0 + PANEL / 2, TOP + PANEL + 32, x_label)
        self._text(x0 - 12, TOP + PANEL / 2, y_label, turn=True)

    def save(self, path) -> None:
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="Inter, \'Segoe UI\', \'DejaVu Sans\', sans-serif">\n'
                f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n')
        Path(path).write_text(head + "\n".join(self.parts) + "\n</svg>\n")
