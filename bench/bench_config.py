# SPDX-License-Identifier: Apache-2.0
"""Loading and linting many application files, as a ratio to the YAML parser alone.

The parser alone is PyYAML with its C parser, which gives plain values: no checks, no defaults, no
lines. What it needs for the events alone is told too. All sides take turns in one run, and the best
turn of each counts.
"""

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from report import Bar, info, report

from pipecd_model.config import load_application
from pipecd_model.lint import LintContext, lint
from pipecd_pipectl.documents import FilesAround, find_documents

FILES = 5_000
LINTED = 1_000
TURNS = 3

TEXT = """\
apiVersion: pipecd.dev/v1beta1
kind: {kind}
spec:
  name: app-{number}
  labels:
    env: example
    team: product-{number}
  description: |
    The application number {number}.
    It is deployed with a canary.
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 10%
      - name: WAIT
        with:
          duration: 10s
      - name: SCRIPT_RUN
        with:
          env:
            MSG: "execute script {number}"
          run: |
            echo $MSG
            sleep 10
          onRollback: |
            echo undo
      - name: K8S_PRIMARY_ROLLOUT
      - name: K8S_CANARY_CLEAN
  trigger:
    onCommit:
      paths:
        - lib/**
        - "!lib/docs/**"
{section}"""
SECTIONS = {
    "Application": "  plugins:\n    kubernetes:\n      input: {namespace: shop}\n",
    "KubernetesApp": "  input:\n    namespace: shop\n",
}


def main() -> None:
    texts = [text(number) for number in range(FILES)]
    sides = {"events": events, "parser": parse, "loader": load}
    turns: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, side in sides.items():
            turns[name].append(timed(functools.partial(side, texts)))
    only_events, parser, loader = (min(turns[name]) for name in sides)
    info(f"config: parse {FILES} files", parser * 1000, "ms")
    info(f"config: parse {FILES} files, events alone", only_events * 1000, "ms")
    info(f"config: load {FILES} files", loader * 1000, "ms")
    report("config: load / parse", loader / parser, "x", Bar("<=", 2.0))

    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        (repository / ".git").mkdir()
        for number, content in enumerate(texts[:LINTED]):
            file = repository / f"team-{number % 20}" / f"app-{number}" / "app.pipecd.yaml"
            file.parent.mkdir(parents=True)
            file.write_text(content)
        parsed = min(timed(lambda: parse_folder(repository)) for _ in range(TURNS))
        linted = min(timed(lambda: lint_folder(repository)) for _ in range(TURNS))
    info(f"config: lint a repository of {LINTED} applications", linted * 1000, "ms")
    info("config: lint / parse", linted / parsed, "x")


def text(number: int) -> str:
    kind = "Application" if number % 2 else "KubernetesApp"
    return TEXT.format(kind=kind, number=number, section=SECTIONS[kind])


def timed(work: Callable[[], None]) -> float:
    """Seconds of this process: what else runs on the machine does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


def parse(texts: list[str]) -> None:
    for each in texts:
        yaml.load(each, Loader=yaml.CSafeLoader)


def events(texts: list[str]) -> None:
    for each in texts:
        for _ in yaml.parse(each, Loader=yaml.CSafeLoader):
            pass


def load(texts: list[str]) -> None:
    for each in texts:
        load_application(each, file="app.pipecd.yaml")


def parse_folder(folder: Path) -> None:
    parse([file.read_text() for file in folder.rglob("*.yaml")])


def lint_folder(folder: Path) -> None:
    count = 0
    for path, data in find_documents([folder]):
        problems = lint(data, file=str(path), context=LintContext(files=FilesAround(path)))
        assert not problems.faults, problems.faults
        count += 1
    assert count == LINTED


if __name__ == "__main__":
    main()
