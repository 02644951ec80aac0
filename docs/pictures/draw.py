"""The pictures of the documentation: python docs/pictures/draw.py writes them beside itself.

Each is one SVG on white, drawn from small tables of cells; the site's dark scheme turns them over (css/padfix.css).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT, GAP = 50, 28, 4  # of a cell, and between cells
INK, SOFT = "#1f2430", "#596273"
SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"

# How a cell is drawn: its fill, its line, its text.
KINDS = {
    "real": ("#e3ebfb", "#4a6fb5", INK),
    "pad": ("#ffffff", "#b4bac5", "#7b8494"),
    "new": ("#dff3e4", "#3d8f5a", INK),
    "wrong": ("#fbe3df", "#c2503f", INK),
    "step": ("#eef1f6", "#8791a3", INK),
}
PAD = "·"


def cell(x: float, y: float, text: str, kind: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """A box with its text in the middle; pads are dashed."""
    fill, line, ink = KINDS[kind]
    dashed = ' stroke-dasharray="3 3"' if kind == "pad" else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
        f'stroke="{line}"{dashed}/>'
        f'<text x="{x + width / 2:g}" y="{y + height / 2 + 5:g}" text-anchor="middle" font-family="{MONO}" '
        f'font-size="14" fill="{ink}">{escape(text)}</text>'
    )


def words(
    x: float, y: float, text: str, *, size: int = 14, ink: str = SOFT, bold: bool = False, middle: bool = False
) -> str:
    """A line of text that begins at x, or has its middle there."""
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    style = f'font-family="{SANS}" font-size="{size}"{weight}{anchor} fill="{ink}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


def arrow(x: float, y: float, to_x: float, to_y: float, ink: str = SOFT) -> str:
    """A straight arrow."""
    line = f'stroke="{ink}" stroke-width="1.6" fill="none" marker-end="url(#tip)"'
    return f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" {line}/>'


def row(x: float, y: float, tokens: str, kinds: str = "") -> str:
    """Cells in a row: the words of `tokens`, `.` for a pad; `kinds` has a letter a cell: r, p, n or w."""
    named = {"r": "real", "p": "pad", "n": "new", "w": "wrong"}
    drawn = []
    for index, token in enumerate(tokens.split()):
        kind = named[kinds[index]] if kinds else "pad" if token == "." else "real"
        drawn.append(cell(x + index * (WIDTH + GAP), y, PAD if token == "." else token, kind))
    return "".join(drawn)


def rows(x: float, y: float, tokens: Sequence[str], kinds: Sequence[str] = ()) -> str:
    """Rows of cells, one beneath the other."""
    return "".join(
        row(x, y + index * (HEIGHT + GAP), line, kinds[index] if kinds else "") for index, line in enumerate(tokens)
    )


def span(cells: int) -> int:
    """The width of so many cells."""
    return cells * (WIDTH + GAP) - GAP


def fault() -> tuple[int, int, str, str]:
    """Where a right-padded and a left-padded batch go on."""
    x, right = 20, 20 + span(4) + 30
    reply = right + span(2)
    drawn = [
        words(x, 28, "padded on the right", bold=True, ink=INK),
        words(right, 28, "what comes next", ink=SOFT),
        rows(x, 40, ["The cat sat down", "Hi . . ."]),
        rows(right, 40, ["on the", "?? ??"], ["nn", "ww"]),
        arrow(right - 26, 40 + HEIGHT / 2, right - 6, 40 + HEIGHT / 2),
        arrow(right - 26, 74 + HEIGHT / 2, right - 6, 74 + HEIGHT / 2, "#c2503f"),
        words(reply + 14, 94, "goes on from a pad", ink="#a63f30"),
        words(x, 142, "padded on the left", bold=True, ink=INK),
        rows(x, 154, ["The cat sat down", ". . . Hi"]),
        rows(right, 154, ["on the", "there !"], ["nn", "nn"]),
        arrow(right - 26, 154 + HEIGHT / 2, right - 6, 154 + HEIGHT / 2),
        arrow(right - 26, 188 + HEIGHT / 2, right - 6, 188 + HEIGHT / 2),
        words(reply + 14, 208, "goes on from Hi"),
    ]
    return (
        reply + 160,
        236,
        "A right-padded row goes on from a pad, a left-padded one from its last token.",
        "".join(drawn),
    )


def relay() -> tuple[int, int, str, str]:
    """The caller's layout, the model's, the caller's again."""
    second = 20 + span(4) + 60
    third = second + span(4) + 60
    y = 40 + HEIGHT + GAP / 2
    drawn = [
        words(20, 28, "your layout", bold=True, ink=INK),
        rows(20, 40, ["The cat sat down", "Hi . . ."]),
        arrow(20 + span(4) + 10, y, second - 10, y),
        words(20 + span(4) + 30, y - 10, "re-lay", size=13, middle=True),
        words(second, 28, "the model's layout", bold=True, ink=INK),
        rows(second, 40, ["The cat sat down", ". . . Hi"]),
        arrow(second + span(4) + 10, y, third - 10, y),
        words(second + span(4) + 30, y - 10, "restore", size=13, middle=True),
        words(third, 28, "your layout again, and the reply", bold=True, ink=INK),
        rows(third, 40, ["The cat sat down on the", "Hi . . . there !"], ["rrrrnn", "rpppnn"]),
    ]
    return (
        third + span(6) + 20,
        124,
        "Prompts move to the left-padded layout, sequences back to the caller's.",
        "".join(drawn),
    )


def layouts() -> tuple[int, int, str, str]:
    """Three ways to pad, one layout of the model."""
    second = 20 + span(6) + 60
    drawn = [
        words(20, 28, "what a mask can say", bold=True, ink=INK),
        words(second, 28, "the model's layout", bold=True, ink=INK),
    ]
    cases = [
        ("on the right", "Two and two . . .", ". . . Two and two"),
        ("on both sides", ". Two and two . .", ". . . Two and two"),
        ("with a hole (a chat)", "Two and . . two .", ". . . Two and two"),
        ("on the left already", ". . . Two and two", ". . . Two and two"),
    ]
    for index, (name, given, moved) in enumerate(cases):
        y = 40 + index * (HEIGHT + 14)
        drawn += [
            row(20, y, given),
            arrow(20 + span(6) + 10, y + HEIGHT / 2, second - 10, y + HEIGHT / 2),
            row(second, y, moved),
            words(second + span(6) + 16, y + HEIGHT / 2 + 5, name),
        ]
    return (
        second + span(6) + 170,
        40 + 4 * (HEIGHT + 14) + 4,
        "Every way to pad is one case: pads first, then the tokens in order.",
        "".join(drawn),
    )


def packed() -> tuple[int, int, str, str]:
    """A packed prefill, the cache it leaves, and the column that is decoded from."""
    tokens = ["The cat sat down on", ". . . . Hi", ". . Two and two", ". . . One day"]
    second = 20 + span(5) + 50
    third = second + span(4) + 50
    last = third + span(4) + 30
    y = 40 + 2 * (HEIGHT + GAP) - GAP / 2
    drawn = [
        words(20, 28, "the model's layout", bold=True, ink=INK),
        rows(20, 40, tokens),
        arrow(20 + span(5) + 8, y, second - 8, y),
        words(second, 28, "packed, one forward", bold=True, ink=INK),
        rows(second, 40, ["The cat sat down", "Two and One ."]),
        arrow(second + span(4) + 8, y, third - 8, y),
        words(third, 28, "KV cache", bold=True, ink=INK),
        rows(third, 40, ["The cat sat down", ". . . .", ". . Two and", ". . . One"]),
        words(last, 28, "next", bold=True, ink=INK),
        rows(last, 40, ["on", "Hi", "two", "day"]),
    ]
    return (
        last + WIDTH + 20,
        40 + 4 * (HEIGHT + GAP) + 12,
        "Prompts share rows for the prefill; their keys go into a left-padded cache.",
        "".join(drawn),
    )


def lengths() -> tuple[int, int, str, str]:
    """Rows of one length share a call."""
    second = 20 + span(3) + 60
    third = second + span(3) + 80
    given = ["Two and two", "Hi . .", "One day .", "Yes . ."]
    apart = [["Hi", "Yes"], ["One day"], ["Two and two"]]
    drawn = [
        words(20, 28, "your batch", bold=True, ink=INK),
        rows(20, 40, given),
        words(second, 28, "a call a length, no pads", bold=True, ink=INK),
    ]
    y = 40.0
    for group in apart:
        drawn.append(rows(second, y, group))
        y += len(group) * (HEIGHT + GAP) + 8
    middle = 40 + 2 * (HEIGHT + GAP)
    drawn += [
        arrow(20 + span(3) + 10, middle, second - 10, middle),
        arrow(second + span(3) + 10, middle, third - 10, middle),
        words(third, 28, "your order again, and the reply", bold=True, ink=INK),
        rows(
            third,
            40,
            ["Two and two is", "Hi . . there", "One day . later", "Yes . . sir"],
            ["rrrn", "rppn", "rrpn", "rppn"],
        ),
    ]
    return (
        third + span(4) + 60,
        int(y) + 12,
        "Rows of one length run together without pads and come back in order.",
        "".join(drawn),
    )


STEPS = (
    ("1 intercept", "stands where generate is"),
    ("2 bind", "arguments by name"),
    ("3 detect", "which cells are tokens"),
    ("4 choose", "left padding, or apart"),
    ("5 re-lay", "to the model's layout"),
    ("6 wrap", "callbacks, processors"),
    ("7 generate", "transformers' own"),
    ("8 restore", "to your layout"),
)


def steps() -> tuple[int, int, str, str]:
    """The eight steps, and the two ways past them."""
    wide, high, gap, top = 190, 58, 28, 84
    place = [(20 + (i % 4) * (wide + gap), top + (i // 4) * (high + 62)) for i in range(8)]
    drawn = [words(20, 28, "model.generate(**batch)", bold=True, ink=INK)]
    for (x, y), (name, what) in zip(place, STEPS, strict=True):
        fill, line, ink = KINDS["real" if name[0] in "58" else "new" if name[0] == "7" else "step"]
        drawn.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="6" fill="{fill}" stroke="{line}"/>')
        drawn += [words(x + 12, y + 24, name, bold=True, ink=ink), words(x + 12, y + 44, what, size=13)]
    for (x, y), (to_x, to_y) in pairwise(place):
        if y == to_y:
            drawn.append(arrow(x + wide + 3, y + high / 2, to_x - 3, to_y + high / 2))
    (x4, y4), (x5, y5) = place[3], place[4]
    turn = y4 + high + 31
    drawn.append(
        f'<path d="M{x4 + wide / 2} {y4 + high} V{turn} H{x5 + wide / 2} V{y5 - 3}" stroke="{SOFT}" stroke-width="1.6" '
        'fill="none" marker-end="url(#tip)"/>'
    )
    drawn.append(arrow(40, 36, 40, top - 3))
    end = 20 + 4 * wide + 3 * gap
    for index, text in (
        (0, "off or suppressed: the original"),
        (2, "no pad anywhere: the original, with your own objects"),
    ):
        middle = place[index][0] + wide / 2
        drawn.append(arrow(middle, top, middle, top - 26))
        drawn.append(words(middle - 30, top - 34, text, size=13))
    return end + 20, place[7][1] + high + 20, "The eight steps of a call, and the two ways past them.", "".join(drawn)


PICTURES: dict[str, Callable[[], tuple[int, int, str, str]]] = {
    "fault.svg": fault,
    "relay.svg": relay,
    "layouts.svg": layouts,
    "packed.svg": packed,
    "lengths.svg": lengths,
    "steps.svg": steps,
}


def svg(picture: Callable[[], tuple[int, int, str, str]]) -> str:
    """The picture as a file: its size, what it shows in words, its drawing."""
    width, height, shown, drawing = picture()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img">\n'
        f"<title>{escape(shown)}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{SOFT}"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n'
        + drawing.replace("><", ">\n<")
        + "\n</svg>\n"
    )


def main() -> None:
    for name, picture in PICTURES.items():
        (HERE / name).write_text(svg(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
