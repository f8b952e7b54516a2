"""Line plots as SVG, readable on light and dark pages."""

from html import escape
from math import ceil, log2, log10

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 30, 50
LIGHT = ("#1f6fb2", "#c2571a", "#2c8a4b", "#8a4fb5")
DARK = ("#6db3f2", "#f0955c", "#6fce8f", "#c79bee")

STYLE = "".join(
    ["text { fill: #1c2733; } .axis { stroke: #5b7083; } .grid { stroke: #d5dde5; }"]
    + [f" .s{at} {{ stroke: {one}; fill: {one}; }}" for at, one in enumerate(LIGHT)]
    + [" @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .axis { stroke: #8aa2b8; }"
       " .grid { stroke: #33404d; }"]
    + [f" .s{at} {{ stroke: {one}; fill: {one}; }}" for at, one in enumerate(DARK)]
    + [" }"])


def scale_end(most):
    """The least round number at or above `most`."""
    unit = 10 ** max(0, ceil(log10(most)) - 1) if most > 1 else 1
    return ceil(most / unit) * unit


def line_plot(title, x_title, y_title, xs, series, x_names=None):
    """A plot of `series`, a dictionary of names and values, over `xs`, which double."""
    top = scale_end(max(value for values in series.values() for value in values))
    low, high = log2(xs[0]), log2(xs[-1])

    def place_x(value):
        return LEFT + (log2(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def place_y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(x_title)}</text>",
        f'<text transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>",
    ]
    for step in range(5):
        value = top * step / 4
        y = place_y(value)
        kind = "axis" if step == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for at, x in enumerate(xs):
        name = x_names[at] if x_names else str(x)
        parts.append(f'<text x="{place_x(x):.1f}" y="{HEIGHT - BOTTOM + 16}"'
                     f' text-anchor="middle">{escape(name)}</text>')
    for at, (name, values) in enumerate(series.items()):
        points = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in zip(xs, values))
        parts.append(f'<polyline class="s{at}" style="fill: none" stroke-width="2" points="{points}"/>')
        parts += [f'<circle class="s{at}" cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="2.5"/>'
                  for x, y in zip(xs, values)]
        y = TOP + 14 + 18 * at
        parts.append(f'<circle class="s{at}" cx="{WIDTH - RIGHT + 16}" cy="{y - 4}" r="4"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 26}" y="{y}">{escape(name)}</text>')
    return "\n".join(parts) + "\n</svg>\n"
