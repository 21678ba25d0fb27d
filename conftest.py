# SPDX-License-Identifier: Apache-2.0
"""What holds for every test of the tree."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_test_support import chosen_store, run_outcome
from pipecd_test_support.leftovers import TestRun

# A run that a script has put into the background has SIGINT ignored, and so would all programs
# that tests start and interrupt: they would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STORE_KIND = "store_kind"
RUN = pytest.StashKey[TestRun]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=chosen_store.KINDS,
        help="Run every test on this store. Without it those that matter most run on both stores,"
        " and the others on SQLite; see docs/testing.md.",
    )


@pytest.fixture
def store_kind(request: pytest.FixtureRequest) -> str:
    """Where control planes of this test keep their rows: see `pytest_runtest_setup`."""
    kind: str = getattr(request, "param", chosen_store.get_chosen_store())
    return kind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes two tests of one that runs on both stores."""
    if STORE_KIND not in metafunc.fixturenames or _is_bound(metafunc.definition):
        return
    config = metafunc.config
    if config.option.store is None and chosen_store.is_on_both(
        metafunc.definition.path, config.rootpath
    ):
        metafunc.parametrize(STORE_KIND, chosen_store.KINDS, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Chooses the store before any fixture is made, those of whole modules too."""
    chosen = getattr(item, "callspec", None)
    kind = chosen.params.get(STORE_KIND) if chosen else None
    if kind is None and _is_bound(item):
        kind = chosen_store.KINDS[0]
    chosen_store.choose_store(kind or item.config.option.store or chosen_store.KINDS[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Gives back the databases of the test, once all that used them has ended."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    yield
    if isinstance(folder, Path):
        chosen_store.clear_databases(folder)


def _is_bound(item: pytest.Item) -> bool:
    """Whether a test is about the files of SQLite, whatever store the others run on."""
    return item.get_closest_marker("sqlite") is not None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives the run a temporary folder of its own; workers inherit that of their starter."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        config.stash[RUN] = TestRun(factory.getbasetemp())
        run_outcome.note_begin(config)


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
    run_outcome.note_end(session, left)
    if left:
        lines = "\n".join(f"  {each}" for each in left)
        print(f"\n\nThe tests have left behind:\n{lines}")  # noqa: T201 - no test is to blame
        session.exitstatus = max(session.exitstatus, pytest.ExitCode.TESTS_FAILED)
