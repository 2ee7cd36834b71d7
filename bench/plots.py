"""Line charts as SVG, with both axes logarithmic. Needs no library."""

import math
from xml.sax.saxutils import escape

COLOURS = ["#c8381e", "#3465a4", "#4e9a06", "#75507b", "#8f5902"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 130, 48, 52


def short(value):
    for factor, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if value >= factor and value % factor == 0:
            return f"{int(value // factor)}{unit}"
    return f"{value:g}"


def ticks(low, high):
    """Powers of ten that lie in the range, with 2 and 5 between them if there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(powers) > 3 else (1, 2, 5)
    return [
        s * 10.0**p for p in powers for s in steps if low * 0.999 <= s * 10.0**p <= high * 1.001
    ]


def curves(title, x_name, y_name, series, note=""):
    """`series`: name -> [(x, y), ...] with x and y above 0. Returns the SVG's text."""
    points = [point for line in series.values() for point in line]
    x_low, x_high = min(p[0] for p in points), max(p[0] for p in points)
    y_low, y_high = min(p[1] for p in points) * 0.8, max(p[1] for p in points) * 1.25

    def x(value):
        return LEFT + (
            math.log(value / x_low) / math.log(x_high / x_low or 1) if x_high > x_low else 0.5
        ) * (WIDTH - LEFT - RIGHT)

    def y(value):
        return (
            HEIGHT
            - BOTTOM
            - math.log(value / y_low) / math.log(y_high / y_low) * (HEIGHT - TOP - BOTTOM)
        )

    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            f' width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12"'
            ' fill="#333">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT}" y="38" fill="#777">{escape(note)}</text>',
    ]
    for tick in ticks(y_low, y_high):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"'
            ' stroke="#ddd"/>'
        )
        out.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for value in sorted({p[0] for p in points}):
        out.append(
            f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
            ' stroke="#eee"/>'
        )
        out.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 16}"'
            f' text-anchor="middle">{short(value)}</text>'
        )
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}"'
        f' text-anchor="middle">{escape(x_name)}</text>'
    )
    out.append(
        f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)"'
        f' text-anchor="middle">{escape(y_name)}</text>'
    )
    names = []
    for colour, (name, line) in zip(COLOURS, series.items()):
        if not line:
            continue
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{colour}"/>' for a, b in line]
        names.append([y(line[-1][1]), name, colour])
    names.sort()
    for before, after in zip(names, names[1:]):  # labels keep apart
        after[0] = max(after[0], before[0] + 15)
    for at, name, colour in names:
        out.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{at + 4:.1f}" fill="{colour}">{escape(name)}</text>'
        )
    out.append("</svg>\n")
    return "\n".join(out)
