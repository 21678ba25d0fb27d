# SPDX-License-Identifier: Apache-2.0
"""Secrets at rest: closed with the newest key, opened with any, bound to their place."""

from pathlib import Path

import pytest

from pipecd_controlplane.usecases.vault import Vault, is_encrypted, read_keys
from pipecd_model.errors import ConfigError, StateError

OLD, NEW = b"o" * 40, b"n" * 40


def test_what_is_closed_opens_again_in_its_place_only() -> None:
    vault = Vault([OLD])
    closed = vault.encrypt("hush", place="a")

    assert is_encrypted(closed)
    assert "hush" not in closed
    assert vault.decrypt(closed, place="a") == "hush"
    with pytest.raises(StateError, match="it is not whole"):
        vault.decrypt(closed, place="b")


def test_the_same_secret_is_closed_differently_each_time() -> None:
    vault = Vault([OLD])
    assert vault.encrypt("hush", place="a") != vault.encrypt("hush", place="a")


def test_an_older_key_still_opens_and_no_longer_closes() -> None:
    closed = Vault([OLD]).encrypt("hush", place="a")
    both = Vault([NEW, OLD])

    assert both.decrypt(closed, place="a") == "hush"
    assert not both.is_current(closed)
    assert both.is_current(both.encrypt("hush", place="a"))
    with pytest.raises(StateError, match="closed with an encryption key that is not here"):
        Vault([NEW]).decrypt(closed, place="a")


def test_one_key_serves_each_purpose_with_another() -> None:
    closed = Vault([OLD], purpose="sign-in").encrypt("hush", place="a")
    with pytest.raises(StateError):
        Vault([OLD]).decrypt(closed, place="a")


@pytest.mark.parametrize("text", ["", "pv1", "pv1..", "nonsense", "pv1.x.y", "a.b.c.d"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(StateError):
        Vault([OLD]).decrypt(text, place="a")


def test_a_key_that_was_cut_or_changed_is_refused() -> None:
    vault = Vault([OLD])
    closed = vault.encrypt("hush", place="a")
    for broken in (closed[:-4], closed[:-8] + "AAAAAAA="):
        with pytest.raises(StateError):
            vault.decrypt(broken, place="a")


def test_a_folder_gets_a_key_of_its_own_once(tmp_path: Path) -> None:
    first = read_keys([], tmp_path)

    assert read_keys([], tmp_path) == first
    assert (tmp_path / "encryption.key").stat().st_mode & 0o077 == 0


def test_a_key_file_that_is_short_or_missing_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"x" * 31)

    with pytest.raises(ConfigError, match="has 31 bytes"):
        read_keys([short], tmp_path)
    with pytest.raises(ConfigError, match="cannot read the encryption key"):
        read_keys([tmp_path / "nothing"], tmp_path)
