# SPDX-License-Identifier: Apache-2.0
"""Run by Python at the start of every program of a site: places to die at, and a clock to move.

`PIPECD_CHAOS_ARMED` is read by `pipecd_runtime.shim.chaos`, which does what it says there.
`PIPECD_CHAOS_CLOCK=<folder>` holds one file per program with the seconds that its clock is off.
"""

import asyncio
import functools
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from chaos_wrapped import WRAPPED  # type: ignore[import-not-found] # it is beside this file

from pipecd_runtime.shim.chaos import hit

CLOCK = "pipecd_sdk.clock"
OURS = {"pipecd_piped", "pipecd_controlplane", "__main__"}
MODULES = {module for module, _ in WRAPPED.values()} | {CLOCK}


class Finder(MetaPathFinder):
    """Finds nothing itself: what others find is changed once it is there."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(name, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def change(module: ModuleType) -> None:
    """Put every place of the module around its function."""
    for place, (name, function) in WRAPPED.items():
        if name == module.__name__:
            *owners, last = function.split(".")
            owner: Any = module
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, last, around(getattr(owner, last), place))
    if module.__name__ == CLOCK and OFF is not None:
        real = module.Clock.now
        module.Clock.now = lambda clock: moved(real(clock))


def around(function: Callable[..., Any], place: str) -> Callable[..., Any]:
    """The function, with a place before or after it."""
    is_before = place.endswith(".before")

    @functools.wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        if is_before:
            hit(place)
        value = function(*arguments, **named)
        if not is_before:
            hit(place)
        return value

    @functools.wraps(function)
    async def waiting(*arguments: Any, **named: Any) -> Any:
        if is_before:
            hit(place)
        value = await function(*arguments, **named)
        if not is_before:
            hit(place)
        return value

    return waiting if asyncio.iscoroutinefunction(function) else plain


def offset_of(folder: str) -> "mmap.mmap | None":
    """Eight bytes that the kit may change at any time."""
    program = Path(sys.orig_argv[1]).name if len(sys.orig_argv) > 1 else ""
    try:
        with Path(folder, program).open("rb") as file:
            return mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    except OSError:
        return None


def seconds_off() -> float:
    assert OFF is not None
    return float(struct.unpack_from("d", OFF)[0])


def moved(moment: datetime) -> datetime:
    return moment + timedelta(seconds=seconds_off())


def is_ours() -> bool:
    """Does one of our modules ask? gRPC's own clock cannot be moved with the one it asks here."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return caller.partition(".")[0] in OURS or caller.startswith("pipecd_")


OFF = offset_of(os.environ["PIPECD_CHAOS_CLOCK"]) if "PIPECD_CHAOS_CLOCK" in os.environ else None
if OFF is not None:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + (seconds_off() if is_ours() else 0.0)
    time.time_ns = lambda: _time_ns() + (int(seconds_off() * 1e9) if is_ours() else 0)
sys.meta_path.insert(0, Finder())
