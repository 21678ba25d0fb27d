# SPDX-License-Identifier: Apache-2.0
"""Check the words of the source: function names, durations, class names that mean two things.

Three rules, from `docs/style.md`:

* A function is an imperative verb, a wait `wait_…`, a predicate `is_/has_/can_`. A bare participle
  (`completed`, `taken_over`), an adverb (`patiently`) or a preposition (`of`, `under`) is none.
  Properties, and functions that a decorator makes a context manager or a fixture, may be nouns,
  gerunds or participles.
* A constant or parameter in seconds says so (`IDLE_SECONDS`), or is a `timedelta`.
* A class name means one thing in the whole tree.

    python tools/check_names.py [--allow FILE] [PATH …]

Exceptions stand in `tools/names_allowed.txt`, one `rule path name` a line, with the
reason above it.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("packages/*/src", "plugins/*/src", "tools")
ALLOWED = ROOT / "tools" / "names_allowed.txt"

VERBS_LIKE_PARTICIPLES = """
bleed breed cast cut embed exceed feed heed hit let need piped proceed put read reset seed set shed
shut speed split spread succeed weed
"""
IRREGULAR = """
began begun bought bound broken brought built caught chosen come dealt done drawn driven eaten
fallen felt forgotten fought found frozen given gone got grown heard held hidden kept known laid
led left lent lost made meant met paid rewritten risen said seen sent shown slept sold spent spoken
spun stood stuck swept sworn swung taken taught thought thrown told torn understood went withdrawn
won worn woven written wrote
"""
PREPOSITIONS = """
above after around at before below beside between by during in of off on out over per since through
to under until up upon via while with within without
"""
NO_ADVERBS = "apply multiply only rely reply supply tally"
NO_GERUNDS = "bring everything nothing ping string warning"
CALLBACKS = frozenset({"on", "to"})
"""Prepositions that begin an ordinary name: `on_commit` (a callback), `to_json` (a conversion)."""
MANAGERS = ("contextmanager", "fixture", "property", "hookimpl", "validator", "overload")
UNITS = re.compile(
    r"(SECONDS?|_SECS?|MILLISECONDS?|_MS|MINUTES?|HOURS?|DAYS?|BYTES|KIB|MIB|GIB|KIBIBYTES|MEBIBYTES"
    r"|RATIO|SHARE|FACTOR|JITTER|RATE|PERCENT|VERSION|GROWTH|LOAD|SCORE)",
    re.IGNORECASE,
)
SPANS = re.compile(
    r"^(.*_)?(timeout|interval|delay|grace|pause|patience|backoff|cap|ttl|age|lifetime|period"
    r"|deadline_in|timelimit|idle|wait)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFinding:
    """One name that breaks a rule."""

    rule: str
    path: str
    line: int
    name: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.name}: {self.hint}"


def main() -> int:
    """Print what breaks a rule; returns 1 when something does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (all sources)")
    parser.add_argument("--allow", type=Path, default=ALLOWED, help="file of exceptions")
    arguments = parser.parse_args()
    allowed = read_allowed(arguments.allow)
    everything = sorted(iter_sources())
    wanted = [path.resolve() for path in arguments.paths] or [ROOT]
    found = [
        finding
        for finding in [*check_files(everything), *check_classes(everything, allowed)]
        if is_within(ROOT / finding.path, wanted)
    ]
    faults = [each for each in found if (each.rule, each.path, each.name) not in allowed]
    stale = allowed - {(each.rule, each.path, each.name) for each in found}
    for finding in faults:
        print(finding)
    if not arguments.paths:
        for rule, path, name in sorted(stale):
            print(
                f"{arguments.allow.name}: nothing breaks this rule any more: {rule} {path} {name}"
            )
        if stale:
            return 1
    print(f"{len(everything)} files, {len(faults)} names to change, {len(allowed)} allowed")
    return 1 if faults else 0


def iter_sources() -> Iterator[Path]:
    """Yields the files that people write, without generated ones."""
    for pattern in SOURCES:
        for folder in ROOT.glob(pattern):
            for file in folder.rglob("*.py"):
                if not re.search(r"_pb2(_grpc)?\.py$", file.name):
                    yield file


def is_within(path: Path, folders: list[Path]) -> bool:
    """Returns whether a file is one of these, or is in one of these."""
    return any(path == folder or folder in path.parents for folder in folders)


def read_allowed(file: Path) -> set[tuple[str, str, str]]:
    """Returns the exceptions: rule, path, name."""
    if not file.is_file():
        return set()
    lines = (line.split("#", 1)[0].split() for line in file.read_text().splitlines())
    return {(line[0], line[1], line[2]) for line in lines if line}


def check_files(files: list[Path]) -> Iterator[NameFinding]:
    """Yields the functions, constants and parameters that break a rule."""
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        tree = ast.parse(file.read_text(), path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from check_function(path, node)
            if isinstance(node, ast.Module | ast.ClassDef):
                yield from check_constants(path, node.body)
            if isinstance(node, ast.ClassDef):
                yield from check_fields(path, node)


def check_function(
    path: str, node: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[NameFinding]:
    """Yields the name of a function, and those of its parameters, that break a rule."""
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    name = node.name.strip("_")
    first = name.split("_", 1)[0]
    hint = ""
    if is_participle(first):
        hint = "a participle; use an imperative verb, wait_… or is_/has_/can_"
    elif first.endswith("ly") and first not in NO_ADVERBS.split():
        hint = "an adverb; use an imperative verb"
    elif first in PREPOSITIONS.split() and not (first in CALLBACKS and "_" in name):
        hint = "a preposition; use an imperative verb"
    elif name.endswith("ing") and "_" not in name and name not in NO_GERUNDS.split():
        hint = "a gerund is for context managers; use an imperative verb"
    dunder = node.name.startswith("__") and node.name.endswith("__")
    if hint and not dunder and not any(word in decorators for word in MANAGERS):
        yield NameFinding(rule="function", path=path, line=node.lineno, name=node.name, hint=hint)
    arguments = node.args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        annotation = ast.unparse(each.annotation) if each.annotation else ""
        if re.match(r"(float|int)\b", annotation) and SPANS.match(each.arg):
            yield NameFinding(
                rule="duration",
                path=path,
                line=each.lineno,
                name=f"{node.name}.{each.arg}",
                hint="say the unit (…_seconds), or take a timedelta",
            )


def check_fields(path: str, node: ast.ClassDef) -> Iterator[NameFinding]:
    """Yields the fields of a class that are durations and do not say their unit."""
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if re.match(r"(float|int)\b", ast.unparse(annotation)) and SPANS.match(name):
                    yield NameFinding(
                        rule="duration",
                        path=path,
                        line=each.lineno,
                        name=f"{node.name}.{name}",
                        hint="say the unit (…_seconds), or take a timedelta",
                    )


def is_participle(word: str) -> bool:
    """Returns whether a word is a past participle, and no verb that looks like one."""
    if word in VERBS_LIKE_PARTICIPLES.split():
        return False
    return word in IRREGULAR.split() or (word.endswith("ed") and len(word) > 3)


def check_constants(path: str, body: list[ast.stmt]) -> Iterator[NameFinding]:
    """Yields constants that are seconds, by their value or docstring, and do not say so."""
    for node, following in zip(body, [*body[1:], None], strict=False):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if not name.isupper() or UNITS.search(name):
            continue
        number = value.value if isinstance(value, ast.Constant) else None
        counts = type(number) is int and "econd" in _read_docstring(following)
        if type(number) is float or counts:
            yield NameFinding(
                rule="duration",
                path=path,
                line=node.lineno,
                name=name,
                hint="say the unit (…_SECONDS), or use a timedelta",
            )


def _read_docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return text
    return ""


def check_classes(files: list[Path], allowed: set[tuple[str, str, str]]) -> Iterator[NameFinding]:
    """Yields class names of which the tree has more than one, beside those that are allowed."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text(), path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    for name, found in sorted(places.items()):
        if len(found) == 1:
            continue
        others = {path for path, _ in found}
        excepted = {path for path in others if ("class", path, name) in allowed}
        for path, line in found:
            if path not in excepted and len(others - excepted) == 1:
                continue  # the one that has the name by right
            where = ", ".join(sorted(others - {path})) or "the same file"
            hint = f"also in {where}"
            yield NameFinding(rule="class", path=path, line=line, name=name, hint=hint)


if __name__ == "__main__":
    sys.exit(main())
