"""Pictures of some numbers as bars, in SVG."""

import html
import statistics

WIDTH, LABELS, BAR, GAP, HEAD = 470, 140, 16, 6, 30
COLOURS = ["#1f5fa8", "#4f93d8", "#b5541c", "#d99a6c", "#6b6b6b", "#a3a3a3"]


def draw(title, names, panels, columns=2):
    """A picture with one panel for each (title, values), and in it one bar for each name: the median of its values, and a line from the
    least to the most."""
    height = HEAD + len(names) * (BAR + GAP) + GAP
    rows = -(-len(panels) // columns)
    whole = (columns * WIDTH, HEAD + rows * height + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]}" height="{whole[1]}" viewBox="0 0 {whole[0]} {whole[1]}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{whole[0]}" height="{whole[1]}" fill="white"/>',
        f'<text x="10" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>',
    ]
    for at, (label, values) in enumerate(panels):
        out += panel(label, names, values, at % columns * WIDTH, HEAD + at // columns * height)
    return "\n".join([*out, "</svg>", ""])


def panel(label, names, values, left, top):
    out = [f'<text x="{left + 10}" y="{top + 20}" font-weight="bold">{html.escape(label)}</text>']
    longest, room = max(max(one) for one in values) or 1, WIDTH - LABELS - 80
    for at, (name, several) in enumerate(zip(names, values, strict=True)):
        y = top + HEAD + at * (BAR + GAP)
        value = statistics.median(several)
        low, wide, high = (room * one / longest for one in (min(several), value, max(several)))
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
        out.append(f'<text x="{left + LABELS - 6}" y="{y + 12}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect x="{left + LABELS}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{COLOURS[at % len(COLOURS)]}"/>')
        middle = y + BAR / 2
        out.append(f'<path d="M{left + LABELS + low:.1f} {middle}H{left + LABELS + high:.1f}" stroke="black"/>')
        out.append(f'<text x="{left + LABELS + high + 5:.1f}" y="{y + 12}">{shown}</text>')
    return out
