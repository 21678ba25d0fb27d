# SPDX-License-Identifier: Apache-2.0
"""Draws the diagrams of the guides as SVG. What can be computed is: the order of a rollback.

`--check` writes nothing and fails if what is there is not what would be drawn.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipecd_model.config import load_application
from pipecd_model.simulate import simulate

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("docs/images/guides")
SVG = "http://www.w3.org/2000/svg"
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PAPER, INK, SOFT, LINE = "#ffffff", "#1f2430", "#5d6675", "#9aa4b2"
Palette = tuple[str, str]
PLAIN: Palette = ("#f2f4f7", "#9aa4b2")
BLUE: Palette = ("#e3edfb", "#4a7fd0")
GREEN: Palette = ("#e0f3e6", "#3c9a5f")
AMBER: Palette = ("#fdf0d5", "#c98a16")
RED: Palette = ("#fbe3e1", "#cf4f45")

SEVEN = """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  pipeline:
    stages:
      - {name: K8S_CANARY_ROLLOUT, with: {replicas: 10%}}
      - {name: WAIT, with: {duration: 10s}}
      - {name: SCRIPT_RUN, with: {run: a, onRollback: a}}
      - {name: K8S_PRIMARY_ROLLOUT}
      - {name: SCRIPT_RUN, with: {run: b, onRollback: b}}
      - {name: K8S_CANARY_CLEAN}
      - {name: SCRIPT_RUN, with: {run: c, onRollback: c}}
"""


class Drawing:
    """A sheet of paper with boxes, arrows and words."""

    def __init__(self, width: int, height: int, title: str) -> None:
        size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
        self._root = ET.Element("svg", {"xmlns": SVG, **size, "font-family": FONT, "role": "img"})
        self._root.append(ET.Comment(" Drawn by tools/gen_pictures.py. "))
        self._add("title", {}, title)
        marker = ET.SubElement(
            ET.SubElement(self._root, "defs"),
            "marker",
            {
                "id": "head",
                "viewBox": "0 0 10 10",
                "refX": "9",
                "refY": "5",
                "markerWidth": "7",
                "markerHeight": "7",
                "orient": "auto-start-reverse",
            },
        )
        ET.SubElement(marker, "path", {"d": "M0 0 L10 5 L0 10 z", "fill": SOFT})
        paper = {"width": str(width), "height": str(height), "rx": "10", "fill": PAPER}
        self._add("rect", {**paper, "stroke": "#d9dee5"})

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: str | Sequence[str],
        palette: Palette = PLAIN,
        *,
        mono: bool = False,
        size: int = 13,
    ) -> None:
        """A box with lines of words in its middle; the first is bold if there are several."""
        fill, stroke = palette
        self._add(
            "rect",
            {
                **_numbers(x=x, y=y, width=width, height=height, rx=7),
                "fill": fill,
                "stroke": stroke,
                "stroke-width": "1.5",
            },
        )
        words = [lines] if isinstance(lines, str) else list(lines)
        top = y + height / 2 - (len(words) - 1) * (size + 4) / 2
        for number, word in enumerate(words):
            self.text(
                x + width / 2,
                top + number * (size + 4) + size * 0.36,
                word,
                size=size if number == 0 else size - 1,
                bold=number == 0 and len(words) > 1,
                colour=INK if number == 0 else SOFT,
                mono=mono,
            )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        bold: bool = False,
        colour: str = INK,
        mono: bool = False,
        anchor: str = "middle",
    ) -> None:
        style = {"font-size": str(size), "fill": colour, "text-anchor": anchor}
        if bold:
            style["font-weight"] = "600"
        if mono:
            style |= {"font-family": MONO, "xml:space": "preserve"}
        self._add("text", {**_numbers(x=x, y=y), **style}, words)

    def arrow(self, *points: tuple[float, float], dashed: bool = False, both: bool = False) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        style = {"d": path, "fill": "none", "stroke": SOFT, "stroke-width": "1.5"}
        if dashed:
            style["stroke-dasharray"] = "5 4"
        if both:
            style["marker-start"] = "url(#head)"
        self._add("path", {**style, "marker-end": "url(#head)"})

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._add("line", {**_numbers(x1=x1, y1=y1, x2=x2, y2=y2), "stroke": LINE})

    def finish(self) -> str:
        ET.indent(self._root, " ")
        return ET.tostring(self._root, encoding="unicode") + "\n"

    def _add(self, tag: str, attributes: dict[str, str], text: str | None = None) -> None:
        ET.SubElement(self._root, tag, attributes).text = text


def _numbers(**values: float) -> dict[str, str]:
    return {name: f"{value:g}" for name, value in values.items()}


def draw_script_run() -> str:
    """The pipeline of the script-run documents, with what is around a script."""
    sheet = Drawing(860, 270, "A pipeline with scripts between the stages of a platform")
    stages = (
        ("K8S_CANARY_ROLLOUT", "10 %", BLUE),
        ("WAIT", "10s", PLAIN),
        ("SCRIPT_RUN", "./e2e-tests.sh", AMBER),
        ("K8S_PRIMARY_ROLLOUT", "everybody", BLUE),
        ("SCRIPT_RUN", "tell the team", AMBER),
    )
    widths = (182, 76, 124, 190, 124)
    x = 20.0
    places: list[float] = []
    for (name, more, palette), width in zip(stages, widths, strict=True):
        if places:
            sheet.arrow((x - 26, 61), (x - 4, 61))
        sheet.box(x, 36, width, 50, (name, more), palette)
        places.append(x + width / 2)
        x += width + 30
    middle = places[2]
    sheet.box(20, 140, 210, 96, ("before it", "folder of the application file,", "at the commit"))
    sheet.box(
        270,
        140,
        280,
        96,
        ("/bin/sh -l", "env, then SR_APPLICATION_NAME,", "SR_TRIGGERED_COMMIT_HASH, …"),
        AMBER,
    )
    sheet.box(
        590,
        140,
        250,
        96,
        ("after it", "its output is the stage's log,", "exit code 0: the next stage"),
        GREEN,
    )
    sheet.arrow((230, 188), (266, 188))
    sheet.arrow((550, 188), (586, 188))
    sheet.arrow((middle, 88), (middle, 136), dashed=True)
    return sheet.finish()


def draw_rollback_order() -> str:
    """Which scripts are rolled back by the stage that fails, as the simulation says."""
    names = [
        *("K8S_CANARY_ROLLOUT", "WAIT", "SCRIPT_RUN", "K8S_PRIMARY_ROLLOUT"),
        *("SCRIPT_RUN", "K8S_CANARY_CLEAN", "SCRIPT_RUN"),
    ]
    sheet = Drawing(860, 432, "Which scripts are rolled back, by the stage that stopped")
    sheet.text(24, 34, "stopped at", bold=True, anchor="start")
    sheet.text(262, 34, "then runs, in this order", bold=True, anchor="start")
    config = load_application(SEVEN.encode(), file="seven-stages.yaml").config
    for number, name in enumerate(names, 1):
        y = 52 + (number - 1) * 50
        palette = AMBER if name == "SCRIPT_RUN" else BLUE if name.startswith("K8S") else PLAIN
        sheet.box(20, y, 200, 38, f"{number}. {name}", palette)
        x = 262.0
        sheet.arrow((222, y + 19), (x - 4, y + 19))
        back = [step for step in simulate(config, stop_at=number) if step.is_rollback and step.runs]
        for step in back:
            if x > 262:
                sheet.arrow((x - 20, y + 19), (x - 4, y + 19))
            script = step.name == "SCRIPT_RUN_ROLLBACK"
            words = f"onRollback of {step.number}" if script else step.name
            sheet.box(x, y, 130, 38, words, GREEN if script else RED, size=12)
            x += 150
    sheet.text(
        430,
        414,
        "the platform first, then the scripts that had started, in pipeline order",
        size=12,
        colour=SOFT,
    )
    return sheet.finish()


def draw_strategy() -> str:
    """The questions that decide between quick sync and pipeline."""
    rows: tuple[tuple[str, str, Palette], ...] = (
        ("Did somebody ask for one of them?", "that one", PLAIN),
        ("Is there no spec.pipeline?", "quick sync", BLUE),
        ("planner.alwaysUsePipeline: true?", "pipeline", GREEN),
        ("Does the message match commitMatcher.pipeline?", "pipeline", GREEN),
        ("Does the message match commitMatcher.quickSync?", "quick sync", BLUE),
        ("Scripts and waits alone, no platform?", "pipeline", GREEN),
        ("Was nothing deployed successfully before?", "quick sync", BLUE),
        ("Is the commit that runs gone from git?", "pipeline", GREEN),
    )
    height = 46 * len(rows) + 90
    sheet = Drawing(700, height, "How the strategy of a deployment is chosen")
    for number, (question, answer, palette) in enumerate(rows):
        y = 20 + number * 46
        sheet.box(30, y, 400, 34, question)
        sheet.arrow((432, y + 17), (536, y + 17))
        sheet.text(484, y + 11, "yes", size=12, colour=SOFT)
        sheet.box(540, y, 130, 34, answer, palette)
        sheet.arrow((230, y + 35), (230, y + 45))
    y = 20 + len(rows) * 46
    sheet.box(
        30,
        y,
        400,
        46,
        ("no to all: the plugin of the platform decides", "by what the commit changes"),
        AMBER,
    )
    sheet.arrow((432, y + 23), (536, y + 23))
    sheet.box(540, y + 4, 130, 38, "either", PLAIN)
    return sheet.finish()


def draw_approvals() -> str:
    """A deployment waits, two people approve, it goes on."""
    sheet = Drawing(860, 240, "A deployment waits, people approve, it goes on")
    sheet.box(20, 30, 150, 54, ("SCRIPT_RUN", "build"), AMBER)
    sheet.box(220, 30, 230, 54, ("WAIT_APPROVAL", "minApproverNum: 2"), GREEN)
    sheet.box(500, 30, 150, 54, ("SCRIPT_RUN", "open"), AMBER)
    sheet.box(700, 30, 140, 54, "SUCCESS", GREEN)
    for start, end in ((170, 220), (450, 500), (650, 700)):
        sheet.arrow((start + 2, 57), (end - 4, 57))
    for number, (who, what, palette) in enumerate(
        (
            ("ada", "approves: 1 more needed", PLAIN),
            ("mallory", "does not count: not an approver", RED),
            ("bob", "approves: enough", PLAIN),
        )
    ):
        x = 20 + number * 216
        sheet.box(x, 150, 200, 56, (who, what), palette)
        sheet.arrow((x + 100, 148), (290 + number * 45, 88))
    sheet.box(680, 150, 160, 56, ("nobody", "timeout: roll back"), RED)
    sheet.arrow((700, 148), (452, 80), dashed=True)
    return sheet.finish()


def draw_after_failure() -> str:
    """What a person can do after a failure, and what each of it leaves behind."""
    sheet = Drawing(860, 300, "What a person can do after a failure")
    sheet.box(20, 30, 170, 54, ("it failed", "rolled back by itself"), RED)
    sheet.box(20, 123, 170, 54, ("it does harm", "though it succeeded"), RED)
    sheet.box(20, 216, 170, 54, ("more would come", "and make it worse"), AMBER)
    sheet.box(260, 30, 250, 54, ("held", "the commit is not tried again"), AMBER)
    sheet.box(260, 123, 250, 54, ("pinned", "application rollback"), BLUE)
    sheet.box(260, 216, 250, 54, ("frozen, or all stopped", "freeze, window stop"), BLUE)
    sheet.box(640, 30, 200, 54, ("release", "the commit once more"), GREEN)
    sheet.box(640, 123, 200, 54, ("release", "the newest commit"), GREEN)
    sheet.box(640, 216, 200, 54, ("unfreeze, resume", "all that waits"), GREEN)
    for y in (57, 150, 243):
        sheet.arrow((192, y), (256, y))
        sheet.arrow((512, y), (636, y))
    sheet.text(574, 47, "or a newer commit", size=12, colour=SOFT)
    sheet.text(574, 140, "a person", size=12, colour=SOFT)
    sheet.text(574, 233, "or override one", size=12, colour=SOFT)
    return sheet.finish()


def draw_files() -> str:
    """The folder of a deploy target: releases, and the link that is switched."""
    sheet = Drawing(860, 250, "Releases lie side by side, and a link leads to the current one")
    sheet.box(20, 84, 190, 84, ("git", "handbook/pages/", "at a commit"), BLUE, size=13)
    sheet.arrow((212, 126), (296, 126))
    sheet.text(254, 118, "deploy", size=12, colour=SOFT)
    sheet.box(300, 24, 540, 204, "", PLAIN)
    sheet.text(320, 48, "…/www/east/handbook/", mono=True, anchor="start", size=12)
    for number, (name, palette) in enumerate(
        (
            ("releases/20261116T0912-…  two commits ago", PLAIN),
            ("releases/20261116T0915-…  before: a rollback switches back", AMBER),
            ("releases/20261116T0921-…  now", GREEN),
        )
    ):
        sheet.box(410, 62 + number * 38, 412, 30, name, palette, size=12)
    sheet.box(320, 184, 80, 30, "current", GREEN, size=12)
    sheet.arrow((360, 182), (360, 153), (408, 153))
    sheet.text(620, 204, "a link: readers see one release or the other", size=12, colour=SOFT)
    return sheet.finish()


def draw_tls() -> str:
    """Who shows a certificate to whom."""
    sheet = Drawing(860, 260, "Who shows a certificate, and who trusts which")
    sheet.box(
        320, 24, 220, 74, ("control plane", "--tls-cert, --tls-key", "one port for all"), BLUE
    )
    sheet.box(20, 160, 200, 70, ("piped", "--cert-file ca.pem"), GREEN)
    sheet.box(330, 160, 200, 70, ("pipectl", "--cert-file ca.pem"), GREEN)
    sheet.box(640, 160, 200, 70, ("browsers", "the CA in their store"), GREEN)
    sheet.box(640, 24, 200, 74, ("your CA", "ca.pem: everybody", "ca.key: locked away"), AMBER)
    sheet.arrow((638, 61), (544, 61), dashed=True)
    sheet.text(590, 52, "signs", size=12, colour=SOFT)
    for x in (120, 430, 740):
        sheet.arrow((x, 158), (430 if x == 430 else 360 if x < 430 else 500, 102))
    sheet.text(150, 130, "connect from inside out", size=12, colour=SOFT)
    return sheet.finish()


def draw_many_repositories() -> str:
    """Repositories, the pipeds that watch them, and their applications."""
    sheet = Drawing(
        860, 290, "One piped watches several repositories, one control plane has several"
    )
    for number, (name, more) in enumerate(
        (("web", "branch main"), ("api", "branch main"), ("infrastructure", "branch production"))
    ):
        y = 30 + number * 82
        sheet.box(20, y, 200, 60, (name, more), BLUE)
    for number, (name, more) in enumerate(
        (("piped near", "watches web and api"), ("piped far", "watches api and infrastructure"))
    ):
        sheet.box(330, 60 + number * 110, 220, 64, (name, more), GREEN)
    for start, end in ((60, 82), (142, 98), (142, 190), (224, 208)):
        sheet.arrow((328, end), (224, start))
    sheet.box(660, 110, 180, 74, ("control plane", "applications,", "deployments"), PLAIN)
    for y in (92, 202):
        sheet.arrow((552, y), (656, 147 + (y - 147) / 4))
    sheet.text(290, 54, "fetches", size=12, colour=SOFT)
    sheet.text(606, 96, "connects", size=12, colour=SOFT)
    return sheet.finish()


def draw_monorepo() -> str:
    """A tree of folders, and which applications a commit deploys."""
    sheet = Drawing(860, 300, "A commit deploys the applications whose files it touches")
    tree = [
        *("apps/web/app.pipecd.yaml", "apps/web/page.txt", "apps/api/app.pipecd.yaml"),
        *("apps/api/server.txt", "shared/style.css", "README.md"),
    ]
    sheet.text(24, 34, "one repository", bold=True, anchor="start")
    for number, name in enumerate(tree):
        palette = (
            BLUE if name.startswith("apps/web") else GREEN if name.startswith("apps/api") else PLAIN
        )
        sheet.box(20, 48 + number * 40, 230, 32, name, palette, mono=True, size=12)
    sheet.text(400, 34, "a commit touches", bold=True)
    sheet.text(730, 34, "what is deployed", bold=True)
    rows: tuple[tuple[str, str, Palette], ...] = (
        ("apps/web/page.txt", "web", BLUE),
        ("files of web and api", "web and api, each its own", GREEN),
        ("shared/style.css", "web: trigger.onCommit.paths", BLUE),
        ("README.md", "nothing", PLAIN),
    )
    for number, (touched, deployed, palette) in enumerate(rows):
        y = 52 + number * 60
        sheet.box(290, y, 240, 42, touched, PLAIN, mono=True, size=12)
        sheet.arrow((532, y + 21), (596, y + 21))
        sheet.box(600, y, 240, 42, deployed, palette)
    return sheet.finish()


def draw_mixing() -> str:
    """Which parts of the two projects work together."""
    sheet = Drawing(860, 250, "Parts of both projects work together")
    sheet.text(430, 32, "the same protocol everywhere: change one part at a time", bold=True)
    columns = (("control plane", 60), ("agent", 340), ("plugins", 620))
    for name, x in columns:
        sheet.box(x, 60, 180, 54, (name, "upstream, in Go"), BLUE)
        sheet.box(x, 166, 180, 54, (name, "in Python"), GREEN)
    for left, right in ((240, 340), (520, 620)):
        for y1, y2 in ((87, 87), (193, 193), (87, 193), (193, 87)):
            sheet.arrow((left + 2, y1), (right - 2, y2), both=True)
    return sheet.finish()


PICTURES: dict[str, Callable[[], str]] = {
    "script-run": draw_script_run,
    "script-run-rollback-order": draw_rollback_order,
    "strategy": draw_strategy,
    "approvals": draw_approvals,
    "after-a-failure": draw_after_failure,
    "files": draw_files,
    "tls": draw_tls,
    "many-repositories": draw_many_repositories,
    "monorepo": draw_monorepo,
    "mixing": draw_mixing,
}


def pages() -> Iterator[tuple[Path, str]]:
    """Every picture: path and text."""
    for name, draw in PICTURES.items():
        yield FOLDER / f"{name}.svg", draw()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    given = parser.parse_args()
    stale = []
    for path, text in pages():
        file = ROOT / path
        if file.exists() and file.read_text() == text:
            continue
        stale.append(str(path))
        if not given.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if given.check and stale:
        sys.exit(f"stale, run `make docs`: {', '.join(stale)}")
    print(f"{len(PICTURES)} pictures, {len(stale)} changed")


if __name__ == "__main__":
    main()
