# SPDX-License-Identifier: Apache-2.0
"""No program of ours starts another but through `pipecd_runtime.process`.

The whole source is read: whatever can start a process, whatever makes arguments of a process from
other than our own words, and whatever hands our whole environment on, is found by name.
"""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
DOOR: Final = "packages/runtime/src/pipecd_runtime"

STARTS: Final = {
    f"{DOOR}/process.py": "the door",
    "packages/pipectl/src/pipecd_pipectl/pluginfile/boot.py": (
        "is copied into plugin files and runs under any Python, without us; it becomes another"
        " Python, and starts nothing"
    ),
    "packages/runtime/src/pipecd_runtime/shim/runner.py": (
        "runs without our packages, for its start to be quick; starts the shell of a script"
    ),
    "packages/runtime/src/pipecd_runtime/shim/template.py": "forks itself, a shim",
}
"""Where a process may start, and why."""

TRUSTED: Final = {
    f"{DOOR}/arguments.py": "the door",
    "packages/piped/src/pipecd_piped/programs/process.py": (
        "the command line of a plugin, put together in command.py of paths, ports and our JSON"
    ),
    "packages/sdk/src/pipecd_sdk/kit/shell.py": "a plain text there is the plugin author's own",
    "packages/sdk/src/pipecd_sdk/testing/process.py": "the test's own command",
}
"""Where arguments may be made of words that do not stand in the source, and why."""

ENVIRONMENTS: Final = {
    f"{DOOR}/environment.py": "makes the environments of children",
    "packages/sdk/src/pipecd_sdk/scripts/prefork.py": "chooses the variables of tests",
    "plugins/scriptrun/src/pipecd_plugin_scriptrun/plugin.py": (
        "the script's environment, of which script_environment leaves out what is ours; and the"
        " folder for records"
    ),
}
"""Where the whole environment may be looked at, and why."""

LIBRARIES: Final = {
    "packages/sdk/src/pipecd_sdk/_glue/parent.py": "prctl",
    "packages/wire/src/pipecd_wire/rpc/arenas.py": "mallopt",
    "plugins/files/src/pipecd_plugin_files/provider/site.py": "syncfs",
    "packages/runtime/src/pipecd_runtime/shim/runner.py": "prctl",
}
"""Where functions of the C library may be called, which has many that start a process."""

MODULES: Final = frozenset(
    {"subprocess", "_posixsubprocess", "pty", "multiprocessing", "popen2", "_winapi"}
    | {"webbrowser", "venv", "ensurepip", "pydoc", "runpy"}
)
HARMLESS: Final = frozenset({"Process", "PIPE", "DEVNULL", "STDOUT"})
"""Names in `asyncio.subprocess` that start nothing."""
SPAWNS: Final = frozenset(
    {"fork", "forkpty", "fork_exec", "vfork", "posix_spawn", "posix_spawnp", "popen", "Popen"}
    | {f"exec{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
    | {f"spawn{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
    | {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}
    | {"ProcessPoolExecutor", "startfile", "getoutput", "getstatusoutput", "check_output"}
    | {"echo_via_pager"}
)
"""Attributes that start a process, whatever they are looked up on."""
OF_OS: Final = SPAWNS | {"system"}
OF_CLICK: Final = frozenset({"edit", "launch"})
LOADERS: Final = frozenset({"__import__", "import_module"})


def find_starts(source: str) -> Iterator[str]:
    """Say what in a source can start a process."""
    tree = ast.parse(source)
    system = {"os", "posix", "nt"} | _aliases(tree, {"os", "posix", "nt"})
    for node in ast.walk(tree):
        yield from (f"line {getattr(node, 'lineno', 0)}: {each}" for each in _start(node, system))


def _start(node: ast.AST, system: set[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            for each in names:
                if each.name.split(".")[0] in MODULES:
                    yield f"import {each.name}"
                if each.name == "asyncio.subprocess" and each.asname:
                    yield f"import asyncio.subprocess as {each.asname}"
        case ast.ImportFrom(module=module, names=names, level=0) if module is not None:
            for each in names:
                if _is_start(module, each.name):
                    yield f"from {module} import {each.name}"
        case ast.Attribute(value=ast.Attribute(attr="subprocess"), attr=name):
            if name not in HARMLESS:
                yield f"subprocess.{name}"
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in system:
            if name in OF_OS or name == "__dict__":
                yield f"{owner}.{name}"
        case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in OF_CLICK:
            yield f"click.{name}"
        case ast.Attribute(attr=name) if name in SPAWNS:
            yield f".{name}"
        case ast.Name(id=name) if name in SPAWNS:
            yield name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            if name in OF_OS | MODULES:
                yield f"getattr(…, {name!r})"
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=owner), *_]):
            if owner in system:
                yield f"getattr({owner}, …)"
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if _name_of(function) in LOADERS and name.split(".")[0] in MODULES | {"os", "posix"}:
                yield f"import of {name!r} by its name"


def _is_start(module: str, name: str) -> bool:
    top = module.partition(".")[0]
    if top in MODULES:
        return True
    if module in {"os", "posix"}:
        return name in OF_OS or name == "*"
    if module == "click":
        return name in OF_CLICK | SPAWNS
    if module == "asyncio.subprocess":
        return name not in HARMLESS
    return top in {"asyncio", "concurrent"} and name in SPAWNS | {"subprocess"}


def find_unchecked_arguments(source: str) -> Iterator[str]:
    """Say what in a source makes arguments of a process that are ours, of other than a literal."""
    tree = ast.parse(source)
    owns = {"own"} | _renamed(tree, "own")
    values = {"join_option"} | _renamed(tree, "join_option")
    trusts = {"vouch_for"} | _renamed(tree, "vouch_for")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _name_of(node.func)
        if name in trusts:
            yield f"line {node.lineno}: vouch_for(…)"
        if name in owns and not all(_is_literal(each) for each in node.args):
            yield f"line {node.lineno}: own(…) of something that does not stand there"
        if name in values and not (node.args and _is_literal(node.args[0])):
            yield f"line {node.lineno}: join_option(…) with a name that does not stand there"
        if name == "Argument":
            yield f"line {node.lineno}: Argument(…)"


def find_whole_environments(source: str) -> Iterator[str]:
    """Say where a source uses all of our environment, and not one variable of it."""
    tree = ast.parse(source)
    system = {"os", "posix"} | _aliases(tree, {"os", "posix"})
    single: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value):
                single.add(id(value))
            case ast.Attribute(value=value, attr="get" | "pop" | "setdefault"):
                single.add(id(value))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr="environ" | "environb"):
                if owner in system and id(node) not in single:
                    yield f"line {node.lineno}: {owner}.environ"
            case ast.ImportFrom(module="os" | "posix", names=names):
                if any(each.name in {"environ", "environb"} for each in names):
                    yield f"line {node.lineno}: from os import environ"


def find_libraries(source: str) -> Iterator[str]:
    """Say where a source loads functions of a C library."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                loaded = {each.name.split(".")[0] for each in names}
            case ast.ImportFrom(module=str(module), level=0):
                loaded = {module.split(".")[0]}
            case _:
                continue
        yield from (
            f"line {node.lineno}: {each}" for each in loaded & {"ctypes", "_ctypes", "cffi"}
        )


def _aliases(tree: ast.AST, modules: set[str]) -> set[str]:
    return {
        each.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for each in node.names
        if each.asname and each.name in modules
    }


def _renamed(tree: ast.AST, name: str) -> set[str]:
    return {
        each.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.asname and each.name == name
    }


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_literal(body) and _is_literal(orelse)
    return False


def sources() -> list[Path]:
    found = [
        file
        for folder in (*ROOT.glob("packages/*/src"), *ROOT.glob("plugins/*/src"))
        for file in folder.rglob("*.py")
        if not file.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    ]
    assert len(found) > 300, "the source is somewhere else"
    return found


def found_by(find: "object") -> dict[str, list[str]]:
    assert callable(find)
    told = {str(file.relative_to(ROOT)): list(find(file.read_text())) for file in sources()}
    return {file: places for file, places in told.items() if places}


@pytest.mark.parametrize(
    ("find", "allowed"),
    [
        (find_starts, STARTS),
        (find_unchecked_arguments, TRUSTED),
        (find_whole_environments, ENVIRONMENTS),
        (find_libraries, LIBRARIES),
    ],
)
def test_nobody_goes_around_the_door(find: "object", allowed: dict[str, str]) -> None:
    found = found_by(find)

    around = {file: places for file, places in found.items() if file not in allowed}
    assert around == {}, "start it with pipecd_runtime.process (a plugin: pipecd_sdk.kit)"
    assert allowed.keys() <= found.keys(), "an exception that nobody needs any more"


@pytest.mark.parametrize(
    "planted",
    [
        "import subprocess",
        "import subprocess as quiet",
        "from subprocess import run as quiet",
        "from subprocess import *",
        "import os\nos.system('x')",
        "import os as o\no.popen('x')",
        "import posix\nposix.system('x')",
        "from os import execv as become",
        "from os import *",
        "import os\nbecome = os.execvpe",
        "import os\nos.fork()",
        "import os\nos.posix_spawn('x', [], {})",
        "import os\nos.spawnlp(0, 'x')",
        "import os\ngetattr(os, 'system')('x')",
        "import pty\npty.spawn('x')",
        "from pty import spawn",
        "import multiprocessing",
        "from multiprocessing.context import Process",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures as c\nc.ProcessPoolExecutor()",
        "import asyncio\nasync def f(): await asyncio.create_subprocess_exec('x')",
        "import asyncio as a\nasync def f(): await a.create_subprocess_shell('x')",
        "import asyncio\nasync def f(): await asyncio.subprocess.create_subprocess_exec('x')",
        "from asyncio import create_subprocess_exec as go",
        "from asyncio.subprocess import create_subprocess_shell",
        "from asyncio import subprocess",
        "import asyncio.subprocess as s",
        "async def f(loop): await loop.subprocess_exec(object, 'x')",
        "async def f(loop): await loop.subprocess_shell(object, 'x')",
        "import importlib\nimportlib.import_module('subprocess').run('x')",
        "__import__('os').system('x')",
        "import _posixsubprocess",
        "def f(libc): libc.execve('x')",
        "import webbrowser",
        "from webbrowser import open as show",
        "import click\nclick.launch('x')",
        "import click\nclick.edit('x')",
        "import click\nclick.echo_via_pager('x')",
        "from click import edit",
        "from click import echo_via_pager as echo",
        "import os\ndef f(x): return getattr(os, x)('x')",
        "import os as o\no.__dict__['system']('x')",
    ],
)
def test_a_planted_start_is_found(planted: str) -> None:
    assert list(find_starts(planted))


@pytest.mark.parametrize(
    "planted",
    [
        "def f(x): return own(x)",
        "def f(x): return own('a', f'--{x}')",
        "def f(x): return own(*x)",
        "def f(x): return own('a' if x else x)",
        "def f(x): return door.own('--' + x)",
        "from pipecd_runtime.process import own as mine\ndef f(x): return mine(x)",
        "def f(x): return vouch_for(x)",
        "def f(x): return join_option(x, 'y')",
        "def f(x): return Argument(x, is_ours=True, key=KEY)",
    ],
)
def test_a_planted_argument_is_found(planted: str) -> None:
    assert list(find_unchecked_arguments(planted))


@pytest.mark.parametrize(
    "planted", ["import ctypes", "import ctypes.util as c", "from ctypes import CDLL"]
)
def test_a_planted_library_is_found(planted: str) -> None:
    assert list(find_libraries(planted))


@pytest.mark.parametrize(
    "planted",
    [
        "import os\nenv = {**os.environ}",
        "import os\nenv = dict(os.environ)",
        "import os\nenv = os.environ.copy()",
        "import os as o\nenv = o.environ | {}",
        "import os\nstart(env=os.environ)",
        "from os import environ",
        "import os\nenv = os.environb",
    ],
)
def test_a_planted_environment_is_found(planted: str) -> None:
    assert list(find_whole_environments(planted))


def test_what_starts_nothing_is_left_alone() -> None:
    harmless = textwrap.dedent(
        """
        import os, platform, asyncio
        from asyncio.subprocess import Process
        from concurrent.futures import ThreadPoolExecutor

        def f(process: asyncio.subprocess.Process) -> int:
            platform.system()
            os.environ.get("A"), os.environ["B"], os.environ.pop("C", "")
            return asyncio.subprocess.PIPE

        command = own("git", "--quiet" if f else "--progress")
        command += (join_option("--git-dir=", f()), word(f()))
        """
    )

    for find in (
        find_starts,
        find_unchecked_arguments,
        find_whole_environments,
        find_libraries,
    ):
        assert list(find(harmless)) == []
