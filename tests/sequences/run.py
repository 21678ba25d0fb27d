# SPDX-License-Identifier: Apache-2.0
"""Many random sequences: `make sequences N=500 SEED=7`. Exits with 1 when one has failed.

They are drawn in batches; `--only` repeats one of them.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sequences.machine import Sequences
from sequences.world import Worlds

BATCH = 10
STEPS = 25


def make_settings(*, examples: int, steps: int, derandomize: bool = False) -> settings:
    """Returns how sequences are drawn: a failure is told as it is, not looked for in a shorter one.

    Each takes seconds, and what is timing is not the same again.
    """
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def run_batch(worlds: Worlds, number: int, *, examples: int, steps: int) -> BaseException | None:
    """Run the sequences of a batch; returns the failure, if there is one."""

    class Drawn(Sequences):
        pass

    Drawn.worlds = worlds
    seeded = seed(number)(Drawn)
    try:
        run_state_machine_as_test(seeded, settings=make_settings(examples=examples, steps=steps))
    except Exception as failure:  # noqa: BLE001 - it is shown
        return failure
    return None


def run(folder: Path, batches: Iterable[int], *, examples: int, steps: int) -> int:
    """Run batches; returns how many have failed."""
    worlds, failed, began = Worlds(folder), 0, time.monotonic()
    try:
        for number in batches:
            failure = run_batch(worlds, number, examples=examples, steps=steps)
            counts = ", ".join(f"{name} {count}" for name, count in Sequences.outcomes.items())
            say(
                f"batch {number}: {'FAILED' if failure else 'ok'}; {counts};"
                f" {time.monotonic() - began:.0f} s"
            )
            if failure is not None:
                failed += 1
                say("".join(f"{line}\n" for line in describe(failure)))
                worlds.close()
    finally:
        worlds.close()
    return failed


def describe(failure: BaseException) -> list[str]:
    """Returns a failure as lines: what is wrong, and the steps that led there."""
    inner = failure.exceptions if isinstance(failure, BaseExceptionGroup) else ()
    lines = [f"{type(failure).__name__}: {failure}", *getattr(failure, "__notes__", ())]
    return [*lines, *(line for each in inner for line in describe(each))]


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201 - a command


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sequences", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each sequence, at most")
    parser.add_argument("--only", type=int, help="the number of one batch, to repeat it")
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one by default")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the programs are ended, too
    folder = given.folder or Path(tempfile.mkdtemp(prefix="pipecd-sequences-"))
    folder.mkdir(exist_ok=True, parents=True)
    first = given.seed * 10_000
    numbers = range(first, first + -(-given.sequences // BATCH))
    batches = numbers if given.only is None else [given.only]
    failed = run(folder.absolute(), batches, examples=BATCH, steps=given.steps)
    if failed == 0 and given.folder is None:
        shutil.rmtree(folder)
    else:
        say(f"the logs of all programs are in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
