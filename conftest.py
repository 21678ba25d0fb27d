# SPDX-License-Identifier: Apache-2.0
"""What holds for every test of the tree."""

import signal
from collections.abc import Iterator

import pytest

from pipecd_test_support.leftovers import TestRun

# A run that a script has put into the background has SIGINT ignored, and so would all programs
# that tests start and interrupt: they would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

RUN = pytest.StashKey[TestRun]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives the run a temporary folder of its own; workers inherit that of their starter."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        config.stash[RUN] = TestRun(factory.getbasetemp())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fails the run when it leaves processes or folders, and names them."""
    yield
    run = session.config.stash.get(RUN, None)
    if run is None:
        return
    left = [str(each) for each in run.find_processes()]
    left += [f"in the temporary folder: {name}" for name in run.find_entries()]
    run.close()
    if left:
        lines = "\n".join(f"  {each}" for each in left)
        print(f"\n\nThe tests have left behind:\n{lines}")  # noqa: T201 - no test is to blame
        session.exitstatus = max(session.exitstatus, pytest.ExitCode.TESTS_FAILED)
