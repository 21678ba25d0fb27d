# SPDX-License-Identifier: Apache-2.0
"""A picture of what a terminal shows: SVG whose text is the text, so that it can be compared."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Final

CELL: Final = 8.4
"""Width of a character, in the units of the picture."""
LINE: Final = 19
MARGIN: Final = 18
BAR: Final = 30
FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, PLAIN, DIM = "#16181d", "#d8dce4", "#8a919e"
COLOURS: Final = {
    30: "#5c6370",
    31: "#f47067",
    32: "#57c785",
    33: "#e3b341",
    34: "#6cb6ff",
    35: "#dcbdfb",
    36: "#4fc3d9",
    37: PLAIN,
}
SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)m")
SVG: Final = "http://www.w3.org/2000/svg"


def draw(lines: Sequence[str], *, columns: int) -> str:
    """Returns the picture of lines with colours, as SVG."""
    width = round(columns * CELL + 2 * MARGIN)
    height = BAR + len(lines) * LINE + MARGIN
    root = ET.Element(
        "svg", {"xmlns": SVG, "viewBox": f"0 0 {width} {height}", "width": str(width)}
    )
    root.append(
        ET.Comment(" Drawn by tests/docs/test_guides.py from what a real terminal showed. ")
    )
    frame = {"width": str(width), "height": str(height), "rx": "8", "fill": BACKGROUND}
    ET.SubElement(root, "rect", frame)
    for number, colour in enumerate(("#f47067", "#e3b341", "#57c785")):
        ET.SubElement(
            root, "circle", {"cx": str(20 + 18 * number), "cy": "15", "r": "5", "fill": colour}
        )
    group = ET.SubElement(root, "g", {"font-family": FONT, "font-size": "14", "fill": PLAIN})
    for number, line in enumerate(lines):
        y = str(BAR + (number + 1) * LINE - 5)
        text = ET.SubElement(group, "text", {"y": y, "xml:space": "preserve"})
        column = 0
        for part, style in _parts(line):
            # The place of each part is given: fonts differ in width.
            place = {"x": f"{MARGIN + column * CELL:.1f}", "textLength": f"{len(part) * CELL:.1f}"}
            ET.SubElement(text, "tspan", {**place, **style}).text = part
            column += len(part)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


def read_lines(picture: str) -> list[str]:
    """Returns the lines that a picture shows."""
    root = ET.fromstring(picture)  # noqa: S314 - our own picture
    return [
        "".join(part.text or "" for part in text.iter(f"{{{SVG}}}tspan"))
        for text in root.iter(f"{{{SVG}}}text")
    ]


def strip_colours(text: str) -> str:
    return SEQUENCE.sub("", text)


def _parts(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the pieces of a line with the attributes of their colours."""
    style: dict[str, str] = {}
    at = 0
    for found in SEQUENCE.finditer(line):
        if found.start() > at:
            yield line[at : found.start()], style
        at = found.end()
        style = _styled(style, [int(code or 0) for code in found[1].split(";")])
    if line[at:]:
        yield line[at:], style


def _styled(style: dict[str, str], codes: Sequence[int]) -> dict[str, str]:
    for code in codes:
        if code == 0:
            style = {}
        elif code == 1:
            style = {**style, "font-weight": "bold"}
        elif code == 2:
            style = {**style, "fill": DIM}
        elif code in COLOURS or code - 60 in COLOURS:
            style = {**style, "fill": COLOURS[code if code in COLOURS else code - 60]}
    return style
