# SPDX-License-Identifier: Apache-2.0
"""Prints what plugin authors can name and call, a line each; `surface.txt` is what it printed.

After a change that is meant: python packages/sdk/tests/surface.py > packages/sdk/tests/surface.txt
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module

MODULES = ["pipecd_sdk", "pipecd_sdk.constraints", "pipecd_sdk.testing"] + [
    f"pipecd_sdk.kit.{name}"
    for name in (
        "analysis",
        "diff",
        "git",
        "gojson",
        "hosts",
        "images",
        "manifests",
        "opened_files",
        "patterns",
        "platforms",
        "process",
        "regex",
        "rereads",
        "retries",
        "script_records",
        "shell",
        "skipping",
        "templates",
        "text",
        "tools",
        "web",
        "yaml",
    )
]

STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def main() -> None:
    for module in MODULES:
        named = import_module(module)
        for name in sorted(named.__all__):
            for line in lines(f"{module}.{name}", getattr(named, name)):
                sys.stdout.write(f"{line}\n")


def lines(name: str, value: object) -> Iterator[str]:
    if isinstance(value, type) and issubclass(value, Enum):
        yield f"{name}: {', '.join(f'{each.name}={each.value!r}' for each in value)}"
    elif inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"{name}{signature(value)}" + (f" is {bases}" if bases else "")
        for attribute, member in sorted(vars(value).items()):
            if attribute.startswith("_") or inspect.ismemberdescriptor(member):
                continue  # fields stand in the line of their class
            yield from members(f"{name}.{attribute}", member)
    elif callable(value):
        yield f"{name}{signature(value)}"
    else:
        yield name


def members(name: str, member: object) -> Iterator[str]:
    if isinstance(member, classmethod | staticmethod):
        yield f"{name}{signature(member.__func__)}"
    elif inspect.isfunction(member):
        yield f"{name}{signature(member)}"
    else:
        yield name


def signature(value: Callable[..., object]) -> str:
    """The parameters without their types: names, kinds, and which may be left out."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(…)"
    words, is_keyword = [], False
    for each in parameters:
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            words.append("*")
            is_keyword = True
        star = STARS.get(each.kind, "")
        is_keyword = is_keyword or star == "*"
        words.append(f"{star}{each.name}" + ("" if each.default is each.empty else "=…"))
    return f"({', '.join(words)})"


if __name__ == "__main__":
    main()
