# SPDX-License-Identifier: Apache-2.0
"""Whether the control plane can be reached, and if not why: for the operator log and for probes.

Every call and the push stream tell how they fared. The first failure is logged at once; the same
one again is counted, and logged once a minute.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pipecd_runtime.logs import logger
from pipecd_wire.rpc import CallError, ConnectionTrouble, explain_unreachable
from pipecd_wire.rpc.unreachable import LONGEST_CAUSE, TELLING

log = logger(__name__)

REPEAT_SECONDS: Final = 60.0
"""Seconds between two lines about the same trouble."""

MOST_LINES: Final = 6
"""Lines in `REPEAT_SECONDS`: a connection that comes and goes must not fill the log."""

ANSWER_SECONDS: Final = 20.0
"""Seconds since the last answer in which one call without an answer says nothing of the others."""

TELLING_SECONDS: Final = 10.0
"""Seconds for which a cause that tells more than later ones stays the one that is shown."""


class Contact:
    """The contact with the control plane, as all calls together see it."""

    def __init__(
        self, address: str, *, tls: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._trouble: ConnectionTrouble | None = None
        self._is_logged = False
        self._seen: set[str] = set()
        """The causes of this outage that were logged."""
        self._began = self._told = self._met = 0.0
        self._repeats = 0
        self._answered: float | None = None
        self._lines: deque[float] = deque(maxlen=MOST_LINES)

    @property
    def trouble(self) -> str:
        """Why the control plane cannot be reached, as a sentence; empty when it can."""
        if self._trouble is None:
            return ""
        hint = f" ({self._trouble.hint})" if self._trouble.hint else ""
        return f"{self._address} cannot be reached: {self._trouble.cause}{hint}"

    def on_failed(self, error: CallError) -> None:
        """Take a call that failed: the peer is out of reach, refuses this piped, or answered."""
        trouble = self._explain(error)
        if trouble is None:
            self.on_answered()
            return
        if error.status == "DEADLINE_EXCEEDED" and self._has_answered_lately():
            return
        if self._trouble is None:
            self._began, self._repeats, self._is_logged = self._clock(), 0, False
            self._seen.clear()
        self._take(trouble)
        self._tell()

    def _take(self, trouble: ConnectionTrouble) -> None:
        """Keep the cause that tells most, unless it was not met for a while."""
        known, now = self._trouble, self._clock()
        if known is None or trouble.weight >= known.weight or now - self._met > TELLING_SECONDS:
            self._trouble, self._met = trouble, now

    def on_answered(self) -> None:
        """Take an answer of the control plane: an outage, if there is one, is over."""
        self._answered = self._clock()
        if self._trouble is None:
            return
        self._trouble = None
        if self._is_logged:
            seconds = round(self._clock() - self._began, 1)
            log.info("controlplane.back", address=self._address, seconds_away=seconds)

    def _explain(self, error: CallError) -> ConnectionTrouble | None:
        if error.status == "UNAUTHENTICATED":
            return ConnectionTrouble(
                cause=f"it refuses this piped: {error.message[:LONGEST_CAUSE]}",
                hint="check projectID, pipedID and the piped key",
                weight=TELLING,
            )
        return explain_unreachable(error, tls=self._tls)

    def _has_answered_lately(self) -> bool:
        return self._answered is not None and self._clock() - self._answered < ANSWER_SECONDS

    def _tell(self) -> None:
        """Log a cause that is new in this outage at once, the same one once a minute."""
        trouble, now = self._trouble, self._clock()
        assert trouble is not None  # noqa: S101 - set by the caller
        is_new = trouble.cause not in self._seen
        if not is_new and now - self._told < REPEAT_SECONDS:
            self._repeats += 1
            return
        if len(self._lines) == MOST_LINES and now - self._lines[0] < REPEAT_SECONDS:
            self._repeats += 1
            return
        again = {"repeated": self._repeats} if self._repeats else {}
        log.warning(
            "controlplane.unreachable",
            address=self._address,
            reason=trouble.cause,
            hint=trouble.hint,
            seconds_away=round(now - self._began, 1),
            **again,
        )
        self._seen.add(trouble.cause)
        self._lines.append(now)
        self._told, self._repeats, self._is_logged = now, 0, True
