# SPDX-License-Identifier: Apache-2.0
"""People who ask one control plane after the other: each call, and each repetition of one."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class SpreadMethod:
    """An RPC that each call asks of the next control plane."""

    def __init__(
        self, name: str, methods: Sequence[Any], addresses: Sequence[str], turns: Iterator[int]
    ) -> None:
        self.name = name
        self.asked = ""
        """The address of the one that was asked last."""
        self._methods = methods
        self._addresses = addresses
        self._turns = turns
        self._method = methods[0]._method  # an error names it so

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        turn = next(self._turns) % len(self._methods)
        self.asked = self._addresses[turn]
        return self._methods[turn](*arguments, **named)


class SpreadStub:
    """A stub for several control planes: `stub.GetDeployment` is a method of its own."""

    def __init__(
        self, kind: Callable[[Any], Any], channels: Sequence[Any], addresses: Sequence[str]
    ) -> None:
        self._stubs = [kind(channel) for channel in channels]
        self._addresses = addresses
        self._turns = itertools.count()

    def __getattr__(self, name: str) -> SpreadMethod:
        methods = [getattr(stub, name) for stub in self._stubs]
        return SpreadMethod(name, methods, self._addresses, self._turns)
