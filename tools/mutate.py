# SPDX-License-Identifier: Apache-2.0
"""Change the code that decides, one place at a time, and see whether a test notices.

For each module of `tools/mutants.toml` a copy of its package is made in which one comparison,
condition, constant or statement is changed (a mutant), and the module's tests run against the copy.
A mutant that no test notices has survived: a test is missing, or the change means nothing. The
second kind stands in the file with its reason; any other survivor makes this program end with 1.

    python tools/mutate.py                    every mutant of every module
    python tools/mutate.py --only lease       one module
    python tools/mutate.py --most 10          a sample: ten mutants of each module
    python tools/mutate.py --id 7f733bd0      one mutant, for whoever writes the test that it lacks
"""

import argparse
import ast
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = ROOT / "tools" / "mutants.toml"

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
PATIENCE = 10
"""A mutant counts as hung when its tests take so many times as long as the unchanged code's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A module, and the tests that must notice a change of it."""

    name: str
    module: Path
    tests: list[str]
    explained: dict[str, str]

    @property
    def source_folder(self) -> Path:
        """The folder that holds the module's import package."""
        return next(folder for folder in self.module.parents if folder.name == "src")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one place."""

    line: int
    place: str
    before: str
    after: str
    text: str = field(repr=False)

    @property
    def id(self) -> str:
        """Stays the same when lines move, and is another one for the same change elsewhere."""
        change = f"{self.place}:{self.before}>{self.after}"
        return hashlib.sha1(change.encode()).hexdigest()[:8]  # noqa: S324


def main() -> int:
    """Run the mutants; returns 1 when one survives that is not explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", action="append", help="the name of a target; may be repeated")
    parser.add_argument("--id", action="append", help="the id of a mutant; may be repeated")
    parser.add_argument("--most", type=int, help="a sample of each module, so many at the most")
    parser.add_argument("--seed", default="1", help="which of the mutants a sample takes")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    arguments = parser.parse_args()
    targets = [each for each in read_targets() if not arguments.only or each.name in arguments.only]
    if not targets:
        parser.error(f"no such target; known: {', '.join(each.name for each in read_targets())}")
    failed = False
    for target in targets:
        mutants = find_mutants(target.module)
        failed |= has_stale_explanations(target, mutants)
        if arguments.id:
            mutants = [each for each in mutants if each.id in arguments.id]
        mutants = pick(mutants, arguments.most, arguments.seed)
        if not mutants:
            continue
        if arguments.list:
            for mutant in mutants:
                print(describe(target, mutant))
        else:
            failed |= not run_target(target, mutants)
    return 1 if failed else 0


def read_targets() -> list[Target]:
    """Returns the targets of the file."""
    document = tomllib.loads(TARGETS.read_text())
    return [
        Target(
            name=name,
            module=ROOT / table["module"],
            tests=table["tests"],
            explained=table.get("explained", {}),
        )
        for name, table in document["target"].items()
    ]


def has_stale_explanations(target: Target, mutants: list[Mutant]) -> bool:
    """Returns whether the file explains mutants that the module has no more, and prints them."""
    stale = target.explained.keys() - {each.id for each in mutants}
    for each in sorted(stale):
        print(f"{target.name}: {each} is explained, and no mutant of the module; remove it")
    return bool(stale)


def pick(mutants: list[Mutant], most: int | None, seed: str) -> list[Mutant]:
    """Returns a sample, in the order of the source; all of them without a limit."""
    if most is None or len(mutants) <= most:
        return mutants
    chosen = random.Random(seed).sample(mutants, most)  # noqa: S311 - guards nothing
    return sorted(chosen, key=lambda mutant: mutant.line)


def run_target(target: Target, mutants: list[Mutant]) -> bool:
    """Run the tests against each mutant; tells whether every survivor is explained."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        copy = Path(temporary) / "src"
        shutil.copytree(target.source_folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / target.module.relative_to(target.source_folder)
        began = time.monotonic()
        if not run_tests(target, copy, limit_seconds=600):
            print(f"{target.name}: the tests fail without any change")
            return False
        limit = max(30.0, PATIENCE * (time.monotonic() - began))
        killed, explained, survived = 0, 0, []
        for mutant in mutants:
            module.write_text(mutant.text)
            if not run_tests(target, copy, limit_seconds=limit):
                killed += 1
            elif mutant.id in target.explained:
                explained += 1
            else:
                survived.append(mutant)
                print(f"survived: {describe(target, mutant)}", flush=True)
    print(
        f"{target.name}: {len(mutants)} mutants, {killed} noticed, {explained} explained, "
        f"{len(survived)} survived",
        flush=True,
    )
    return not survived


def run_tests(target: Target, source: Path, *, limit_seconds: float) -> bool:
    """Returns whether the tests of a target pass with this copy of the source."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *target.tests]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            timeout=limit_seconds,
            check=False,
            capture_output=True,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def describe(target: Target, mutant: Mutant) -> str:
    """Returns a line for people: the place, the id, the change."""
    path = target.module.relative_to(ROOT).as_posix()
    return f"{path}:{mutant.line} {mutant.id} `{mutant.before}` -> `{mutant.after}`"


def find_mutants(module: Path) -> list[Mutant]:
    """Returns every mutant of a module, in the order of its source."""
    text = module.read_text()
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    tree = ast.parse(text)
    scopes = find_scopes(tree)
    seen: Counter[str] = Counter()
    found = []
    for node, after in iter_changes(tree, text):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = data[begin:end].decode()
        changed = (data[:begin] + after.encode() + data[end:]).decode()
        line = lines[node.lineno - 1]
        column = node.col_offset - (len(line) - len(line.lstrip()))
        place = f"{scopes.get(node.lineno, '')}:{line.strip()}:{column}"
        seen[place + after] += 1
        mutant = Mutant(
            line=node.lineno,
            place=f"{place}:{seen[place + after]}",
            before=" ".join(before.split()),
            after=" ".join(after.split()),
            text=changed,
        )
        if is_parsable(changed):
            found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.line)


def find_scopes(tree: ast.Module) -> dict[int, str]:
    """Returns the name of the innermost function or class that each line belongs to."""
    scopes: dict[int, str] = {}
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                scopes[line] = node.name
    return scopes


def is_parsable(text: str) -> bool:
    """Returns whether a text is Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def iter_changes(tree: ast.Module, text: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yields nodes with the text that replaces them."""
    passed_over = {id(each) for each in iter_undecided(tree)}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.expr):
            for after in change_expression(node, text):
                yield node, after
        elif isinstance(node, ast.stmt):
            for after in change_statement(node):
                yield node, after


def iter_undecided(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields all nodes that decide nothing: annotations, decorators, settings, the operator log."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if name.isupper():
                parts.append(node)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                parts.append(node)
            case ast.AnnAssign() | ast.arg():
                parts.append(node.annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                parts += [node.returns, *node.decorator_list]
            case ast.ClassDef():
                parts += node.decorator_list
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
                parts.append(node)
        for part in parts:
            if part is not None:
                yield from ast.walk(part)


def change_expression(node: ast.expr, text: str) -> Iterator[str]:
    """Yields what a condition or a constant can be changed to."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield f"{source(left, text)} {COMPARISONS[type(operator)]} {source(right, text)}"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield f"({word.join(f'({source(value, text)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({source(operand, text)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.IfExp(test=_, body=body, orelse=orelse):
            yield f"({source(body, text)})"
            yield f"({source(orelse, text)})"


def change_statement(node: ast.stmt) -> Iterator[str]:
    """Yields what a statement can be changed to: nothing, or the other way on."""
    match node:
        case (
            ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Delete()
        ):
            yield "pass"
        case ast.Continue():
            yield "break"
        case ast.Break():
            yield "continue"
        case ast.Return(
            value=ast.Compare()
            | ast.BoolOp()
            | ast.UnaryOp(op=ast.Not())
            | ast.Constant(value=bool())
        ):
            return  # changed as an expression already; None is as false as False
        case ast.Return(value=ast.expr() as value) if not is_none(value):
            yield "return None"


def is_none(value: ast.expr) -> bool:
    """Returns whether an expression is the word None."""
    return isinstance(value, ast.Constant) and value.value is None


def source(node: ast.expr, text: str) -> str:
    """Returns the text of an expression."""
    return ast.get_source_segment(text, node) or ast.unparse(node)


if __name__ == "__main__":
    sys.exit(main())
