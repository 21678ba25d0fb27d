# SPDX-License-Identifier: Apache-2.0
"""API servers that kill a plugin, or piped with it, at a chosen change that they are asked for."""

import contextlib
import os
import signal
import threading
from collections.abc import Collection
from pathlib import Path

from pipecd_test_support.kubernetes.faults import RESET, Fault
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.real_cluster import RealCluster
from pipecd_test_support.piped_site import PipedSite
from pipecd_test_support.web_server import Question

_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class KillPlan:
    """At which changes who dies; one for all API servers that a plugin talks to."""

    def __init__(self, plugin: str = "kubernetes") -> None:
        self.plugin = plugin
        self._program = f"pipecd-plugin-{plugin.replace('_', '-')}"
        self._lock = threading.Lock()
        self._piped: PipedSite | None = None
        self._at: frozenset[int] = frozenset()
        self._fault = RESET
        self._is_piped_killed = False
        self.writes: list[str] = []
        self.deaths = 0

    @property
    def is_multicluster(self) -> bool:
        """Whether the plugin is the one for several clusters."""
        return self.plugin == "kubernetes_multicluster"

    def count(self) -> None:
        """Begin to count changes; nobody dies."""
        with self._lock:
            self._at = frozenset()
            self.writes.clear()
            self.deaths = 0

    def kill(
        self, piped: PipedSite, *, at: Collection[int], fault: Fault, is_piped_killed: bool
    ) -> None:
        """Plan deaths at changes that are counted from 1, those after a death included.

        After the first death piped dies with every other one: it gives a stage up whose plugin
        ends again and again.
        """
        self.count()
        with self._lock:
            self._piped, self._at, self._fault = piped, frozenset(at), fault
            self._is_piped_killed = is_piped_killed

    def find_fault(self, question: Question) -> Fault | None:
        """Count a change; kill, and return what becomes of the change, when it is time."""
        if question.method not in _CHANGES or "dryRun" in question.query:
            return None
        with self._lock:
            self.writes.append(f"{question.method} {question.path}")
            if len(self.writes) not in self._at or self._piped is None:
                return None
            if self._is_piped_killed == (self.deaths % 2 == 0):
                self._piped.signal(signal.SIGKILL)
            self.deaths += 1
            for pid in find_plugins(self._piped, self._program):
                with contextlib.suppress(ProcessLookupError):  # an earlier change has killed it
                    os.kill(pid, signal.SIGKILL)
        return self._fault


class KillingApiServer(FaultyApiServer):
    """Does what a plan says, and everything else as the real one behind it."""

    def __init__(self, cluster: RealCluster, plan: KillPlan) -> None:
        super().__init__(cluster)
        self._plan = plan

    def _find_fault(self, question: Question) -> Fault | None:
        return self._plan.find_fault(question) or super()._find_fault(question)


def find_plugins(piped: PipedSite, program: str) -> list[int]:
    """The processes of a plugin of this piped, those whose piped was killed included."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        is_ours = str(piped.folder).encode() in environment + b" ".join(words)
        if is_ours and any(Path(os.fsdecode(word)).name == program for word in words if word):
            found.append(int(entry.name))
    return found
