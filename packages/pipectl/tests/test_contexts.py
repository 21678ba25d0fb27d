# SPDX-License-Identifier: Apache-2.0
"""Contexts: kept for their user alone, and never half."""

import os
import stat
from pathlib import Path

import pytest

from pipecd_model.errors import ConfigError, NotFoundError, StateError
from pipecd_pipectl.contexts import Context, ContextStore, find_folder

WORK = Context(address="host:443", project="shop", subject="ada", session="s.secret", expires_at=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "config" / "pipectl"


@pytest.fixture
def store(folder: Path) -> ContextStore:
    return ContextStore(folder)


def test_the_folder_is_where_the_user_keeps_configuration(tmp_path: Path) -> None:
    assert find_folder(str(tmp_path)) == tmp_path / "pipectl"
    assert find_folder("") == Path.home() / ".config" / "pipectl"
    assert find_folder("relative") == Path.home() / ".config" / "pipectl"


def test_a_context_is_read_as_it_was_saved_and_for_its_user_alone(
    store: ContextStore, folder: Path
) -> None:
    store.save("work", WORK)

    assert store.get("work") == WORK
    assert store.list_names() == ["work"]
    for path in (folder, folder / "contexts"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (file,) = (folder / "contexts").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_that_others_can_enter_is_closed(store: ContextStore, folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)

    store.save("work", WORK)

    assert stat.S_IMODE(folder.stat().st_mode) & 0o027 == 0


def test_the_current_one_follows_its_name_and_goes_with_it(store: ContextStore) -> None:
    store.save("work", WORK)
    assert store.find_current_name() == ""
    store.use("work")
    store.rename("work", "office")
    assert (store.find_current_name(), store.list_names()) == ("office", ["office"])

    store.delete("office")

    assert (store.find_current_name(), store.list_names()) == ("", [])


def test_a_name_that_is_taken_stays(store: ContextStore) -> None:
    store.save("work", WORK)
    store.save("home", Context(address="other:443"))

    with pytest.raises(ConfigError, match="already"):
        store.rename("home", "work")

    assert store.get("work") == WORK


def test_an_unknown_name_says_which_are_known(store: ContextStore) -> None:
    with pytest.raises(NotFoundError) as unknown:
        store.get("work")
    assert "pipectl login" in unknown.value.hint
    store.save("home", WORK)

    for act in (store.get, store.use, store.delete):
        with pytest.raises(NotFoundError) as missing:
            act("work")
        assert missing.value.hint == "known: home"


@pytest.mark.parametrize("name", ["", "../work", "a/b", "-x", ".hidden", "a\n", "a b", "x" * 300])
def test_a_name_is_no_path_and_no_option(store: ContextStore, name: str) -> None:
    with pytest.raises(ConfigError):
        store.save(name, WORK)
    with pytest.raises(ConfigError):
        store.get(name)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'{"address": 1}', b"\xff\xfe"])
def test_a_file_that_is_no_context_is_a_sentence(
    store: ContextStore, folder: Path, content: bytes
) -> None:
    store.save("work", WORK)
    (folder / "contexts" / "work.json").write_bytes(content)

    with pytest.raises(ConfigError) as wrong:
        store.get("work")

    assert "pipectl context delete work" in wrong.value.hint


def test_a_link_is_not_followed(store: ContextStore, folder: Path, tmp_path: Path) -> None:
    store.save("work", WORK)
    file = folder / "contexts" / "work.json"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StateError):
        store.get("work")


def test_a_fifo_is_not_waited_for(store: ContextStore, folder: Path) -> None:
    store.save("work", WORK)
    (folder / "contexts" / "work.json").unlink()
    os.mkfifo(folder / "contexts" / "work.json")

    with pytest.raises(StateError, match="is not this user's own"):
        store.get("work")


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StateError) as wrong:
        ContextStore(tmp_path / "file" / "pipectl").save("work", WORK)

    assert "XDG_CONFIG_HOME" in wrong.value.hint
