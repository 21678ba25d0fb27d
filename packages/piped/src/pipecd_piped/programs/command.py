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
    """A command, its environment and its configuration."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to the operator's."""
    inherited: tuple[str, ...] = ()
    """Prefixes of piped's own variables that the program inherits as well."""
    config: str | None = None
    """A text that the program reads from the descriptor that is passed with `--config-fd`."""

    @contextmanager
    def descriptors(self) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Opens the descriptors while the block runs; yields the arguments and the descriptors."""
        if self.config is None:
            yield self.arguments, ()
            return
        # In memory: nothing is written to disk, and the writer need not wait for the reader.
        config = os.memfd_create("plugin-config")
        try:
            os.write(config, self.config.encode())
            os.lseek(config, 0, os.SEEK_SET)
            yield (*self.arguments, "--config-fd", str(config)), (config,)
        finally:
            os.close(config)


async def pdeathsig_wrapper() -> tuple[str, ...]:
    """Returns the command prefix with which a program is killed when piped dies.

    Empty when the machine has no suitable `setpriv`. Programs made with our SDK need no prefix.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    wrapper = (setpriv, "--pdeathsig", "KILL", "--")
    # The setpriv of busybox does not have this option.
    command = (door.word(setpriv), *door.own("--pdeathsig", "KILL", "--", "true"))
    probe = await door.start(command, env=door.choose_environment(["PATH"]))
    return wrapper if await probe.wait() == 0 else ()
