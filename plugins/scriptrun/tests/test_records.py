# SPDX-License-Identifier: Apache-2.0
"""The records of scripts: where they are, who may begin one, and when they go."""

import os
from pathlib import Path

import pytest

from pipecd_runtime import script_records
from pipecd_runtime.shim import processes
from pipecd_runtime.shim import record as shim
from pipecd_sdk.kit.script_records import to_folder_name
from pipecd_sdk.scripts.records import ScriptAttempts, ScriptRecord, find_scripts_folder, sweep
from pipecd_wire.headers import SCRIPT_ID_VARIABLE


def attempts(folder: Path, *, deployment: str = "d1") -> ScriptAttempts:
    return ScriptAttempts(folder, deployment=deployment, stage="s1", retry=0)


def test_piped_says_where_the_records_are() -> None:
    assert find_scripts_folder({"PIPECD_SCRIPTS_DIR": "/data/scripts"}) == Path("/data/scripts")


def test_under_a_go_agent_they_are_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert find_scripts_folder({}) == tmp_path / ".piped" / "scripts"


@pytest.mark.parametrize("name", ["INTENT", "LOCK", "STARTED", "STOPPED", "GRACE", "EXIT"])
def test_the_shim_names_its_files_as_piped_does(name: str) -> None:
    """The shim cannot import the layout: it runs on the standard library alone."""
    assert getattr(shim, name) == getattr(script_records, name)


def test_the_shim_marks_processes_as_piped_looks_for_them() -> None:
    assert processes.SCRIPT_ID == SCRIPT_ID_VARIABLE


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../etc", "x" * 300, "a\0b", "ü"])
def test_no_id_leads_out_of_the_folder(name: str) -> None:
    assert len(to_folder_name(name)) == 64
    assert to_folder_name(name).isalnum()


def test_a_usual_id_is_its_own_name() -> None:
    name = "5b6e1f0c-2a4d-4f7e-9c3b-0d1e2f3a4b5c"

    assert to_folder_name(name) == name


def test_the_first_token_stays(tmp_path: Path) -> None:
    record = attempts(tmp_path)[0]

    assert record.begin("first") == "first"
    assert record.begin("second") == "first"
    assert record.folder.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in record.folder.iterdir()] == ["intent"]


def test_the_last_attempt_is_the_one_that_counts(tmp_path: Path) -> None:
    all_of_them = attempts(tmp_path)
    assert all_of_them.last() is None

    all_of_them[0].begin("t")
    all_of_them[1].begin("t")

    assert all_of_them.last() == 1


def test_a_record_is_taken_once(tmp_path: Path) -> None:
    lock = shim.take(str(tmp_path), 0)

    assert lock is not None
    assert shim.take(str(tmp_path), 0) is None
    os.close(lock)
    assert shim.take(str(tmp_path), 0) is None, "also when the first shim is gone"


def test_without_the_exclusive_record_a_script_would_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPECD_CHAOS_WITHOUT", "exclusive")

    locks = [shim.take(str(tmp_path), 0), shim.take(str(tmp_path), 0)]

    assert None not in locks
    for lock in locks:
        os.close(lock or 0)


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    record = ScriptRecord(folder=tmp_path)
    assert not record.is_locked()

    lock = shim.take(str(tmp_path), 7)
    assert lock is not None
    assert record.is_locked()
    os.close(lock)
    assert not record.is_locked()


def test_indexes_of_a_second_attempt_are_above_those_of_the_first(tmp_path: Path) -> None:
    floor = 1 << 60
    first, second = attempts(tmp_path)[0], attempts(tmp_path)[1]
    for record in (first, second):
        record.begin("t")
        lock = shim.take(str(record.folder), floor)
        os.close(lock or 0)
        record.output.write_bytes(b"x" * 1000)
        floor = record.index_after()

    started, again = first.read_started(), second.read_started()
    assert started is not None
    assert again is not None
    assert started.first_index == 1 << 60
    assert again.first_index > first.index_at(started, 1000) + 15


def test_old_records_go_and_others_stay(tmp_path: Path) -> None:
    for name in ("old", "new", "kept", "running"):
        record = attempts(tmp_path, deployment=name)[0]
        record.begin("t")
        if name == "running":
            lock = shim.take(str(record.folder), 0)
        if name != "new":
            for path in (*record.folder.iterdir(), record.folder, record.folder.parent):
                os.utime(path, (1, 1))
    (tmp_path / "no folder").touch()

    assert sweep(tmp_path, older_than=60, keep=["kept"]) == ["old"]

    assert {each.name for each in tmp_path.iterdir()} == {"new", "kept", "running", "no folder"}
    os.close(lock or 0)


def test_there_is_nothing_to_sweep_at_first(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none", older_than=0) == []
