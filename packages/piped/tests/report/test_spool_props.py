# SPDX-License-Identifier: Apache-2.0
"""However lines are written, taken and interrupted: each is seen, and none before an older one."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pipecd_piped.report.spool import ChunkKind, Spool, StageKey, find_spools

KEY = StageKey("d1", "s/1", 2)
SMALL = 200


class Life(RuleBasedStateMachine):
    """A spool, killed and found again, beside a list."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "logs"
        self.spool = Spool(self.path, KEY, largest_file=SMALL)
        self.written: list[bytes] = []
        self.seen: list[bytes] = []

    @rule(
        sizes=st.lists(st.integers(1, 150), min_size=1, max_size=4),
        kind=st.sampled_from([ChunkKind.LINES, ChunkKind.CHECKPOINT, ChunkKind.END]),
    )
    def write(self, sizes: list[int], kind: ChunkKind) -> None:
        new = [b"%06d;" % (len(self.written) + n) * size for n, size in enumerate(sizes)]
        self.spool.append([(kind, payload) for payload in new])
        self.written += new

    @rule(most=st.integers(1, 3000), is_taken=st.booleans())
    def send(self, most: int, is_taken: bool) -> None:
        chunk = self.spool.next(most)
        if chunk is None:
            assert self.seen == self.written
            return
        for payload in _cut(chunk.payload):
            if payload not in self.seen:
                assert payload == self.written[len(self.seen)]
                self.seen.append(payload)
        if is_taken:
            self.spool.mark_delivered(chunk)

    @rule()
    def kill(self) -> None:
        self.spool.close()
        found = find_spools(self.path, largest_file=SMALL)
        assert [each.key for each in found] in ([], [KEY])
        self.spool = found[0] if found else Spool(self.path, KEY, largest_file=SMALL)

    @invariant()
    def nothing_is_broken(self) -> None:
        assert not self.spool.is_broken
        assert self.spool.size >= 0

    def teardown(self) -> None:
        while (chunk := self.spool.next(500)) is not None:
            self.seen += [each for each in _cut(chunk.payload) if each not in self.seen]
            self.spool.mark_delivered(chunk)
        assert self.seen == self.written
        assert not self.path.exists() or not list(self.path.iterdir())
        self.folder.cleanup()


def _cut(payload: bytes) -> list[bytes]:
    """The records of a request: each repeats its number."""
    found: dict[bytes, int] = {}
    for number in payload.split(b";")[:-1]:
        found[number] = found.get(number, 0) + 1
    return [(number + b";") * count for number, count in found.items()]


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
