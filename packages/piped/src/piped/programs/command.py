# SPDX-License-Identifier: Apache-2.0
"""The command that starts a program: arguments, environment, a configuration on a descriptor."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipecd_runtime import process as door


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it gets in addition to the operator's variables."""
    inherited: tuple[str, ...] = ()
    """Prefixes of piped's own variables that it gets as well."""
    config: str | None = None
    """A text that it reads from a descriptor, whose number follows `--config-fd`."""

    @contextmanager
    def descriptors(self) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Opens the descriptors for the block; gives the arguments that name them, and them."""
        if self.config is None:
            yield self.arguments, ()
            return
        # In memory: nothing is left on a disk, and no writer has to wait for the reader.
        config = os.memfd_create("plugin-config")
        try:
            os.write(config, self.config.encode())
            os.lseek(config, 0, os.SEEK_SET)
            yield (*self.arguments, "--config-fd", str(config)), (config,)
        finally:
            os.close(config)


async def pdeathsig_wrapper() -> tuple[str, ...]:
    """Returns the command that has what follows it killed when piped dies; empty if there is none.

    Programs made with our SDK see to it themselves; others need this.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    wrapper = (setpriv, "--pdeathsig", "KILL", "--")
    # The one of busybox knows no such option.
    command = (door.word(setpriv), *door.own("--pdeathsig", "KILL", "--", "true"))
    probe = await door.start(command, env=door.choose_environment(["PATH"]))
    return wrapper if await probe.wait() == 0 else ()
