# SPDX-License-Identifier: Apache-2.0
"""Files that describe what is deployed come from anybody's branch: they are read with care."""

import doctest
import os
from pathlib import Path

import pytest

from pipecd_sdk import InvalidFileError, Source
from pipecd_sdk.kit import manifests, opened_files
from pipecd_sdk.kit.manifests import ManifestFile, read_manifest_file

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An application's folder, with a secret of piped's machine beside the repository."""
    made = tmp_path / "repository" / "web"
    made.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    (tmp_path / "repository" / ".git" / "config").write_text("url: https://token@example.com\n")
    (tmp_path / "secret.yaml").write_text("password: hush\n")
    return made


def read(folder: Path, name: str = "web.yaml", config: bytes = b"") -> ManifestFile:
    source = Source(application_directory=str(folder), config=config)
    return read_manifest_file(source, name, what="the manifest", option="input.file")


def test_the_examples_are_true() -> None:
    assert doctest.testmod(manifests).failed == 0
    assert doctest.testmod(opened_files).failed == 0


def test_one_object_is_read_as_yaml_and_as_json(folder: Path) -> None:
    (folder / "web.yaml").write_text("---\nname: web\n---\n")
    (folder / "web.json").write_text('{"name": "web"}')

    assert read(folder).value == read(folder, "web.json").value == {"name": "web"}


def test_a_folder_that_applications_share_may_be_named(folder: Path) -> None:
    (folder.parent / "shared.yaml").write_text("name: all")

    assert read(folder, "../shared.yaml").value == {"name": "all"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../../secret.yaml", "leads out of the repository"),
        ("/etc/passwd", "leads out of the repository"),
        ("link.yaml", "leads out of the repository"),
        ("../.git/config", "is of git itself, not of the commit"),
        ("a\0b", "is not a path"),
        ("", "is not a path"),
        (".", "is not a file"),
        ("pipe", "is not a file"),
        ("missing.yaml", "is not in the repository (paths are read from the application's folder)"),
    ],
)
def test_nothing_else_of_the_machine_is_read(folder: Path, name: str, said: str) -> None:
    (folder / "link.yaml").symlink_to(folder.parent.parent / "secret.yaml")
    os.mkfifo(folder / "pipe")

    with pytest.raises(InvalidFileError) as caught:
        read(folder, name)

    assert said in caught.value.reason()
    assert "hush" not in caught.value.reason()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the manifest must be one document, and there are 0"),
        ("a: 1\n---\nb: 2\n", "the manifest must be one document, and there are 2"),
        ("[]", "the manifest must be an object"),
        ("a: [", "web.yaml: line 2"),
        ("\udcff", "is not UTF-8"),
        (BOMB, "more than 100000 values once aliases are written out"),
        ("a: " + "[" * 500_000, "nested more than 100 levels deep"),
        ("a: .inf", ".inf is not a number"),
        ("a: " + "x" * 1024 * 1024, "has more than 1048576 bytes (input.file names it)"),
        ("!!python/object/apply:os.system [id]", "is not supported"),
    ],
    ids=lambda value: value[:20],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(
    folder: Path, text: str, said: str
) -> None:
    (folder / "web.yaml").write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(InvalidFileError) as caught:
        read(folder)

    assert said in caught.value.reason()


def test_a_file_with_opened_secrets_is_known_by_whatever_name(folder: Path) -> None:
    """A link to it would else be shown with its values."""
    (folder / "web.yaml").write_text("password: hush")
    (folder / "link.yaml").symlink_to("web.yaml")
    (folder / "other.yaml").write_text("name: web")
    config = b"spec: {encryption: {decryptionTargets: [./web.yaml]}}"

    found = {each.name: read(folder, each.name, config).holds_secrets for each in folder.iterdir()}

    assert found == {"web.yaml": True, "link.yaml": True, "other.yaml": False}


def list_holders(folder: Path, config: str) -> set[str]:
    """Returns which files of a folder are known to hold opened secrets."""
    names = sorted(each.name for each in folder.iterdir())
    return {each for each in names if read(folder, each, config.encode()).holds_secrets}


def test_keys_are_found_in_any_case_as_piped_reads_them(folder: Path) -> None:
    (folder / "web.yaml").write_text("password: hush")
    (folder / "other.yaml").write_text("name: web")

    for key in ("DecryptionTargets", "decryptiontargets", "DECRYPTIONTARGETS"):
        assert list_holders(folder, f"spec: {{encryption: {{{key}: [web.yaml]}}}}") == {"web.yaml"}
    assert list_holders(folder, "Spec: {Encryption: {decryptionTargets: [web.yaml]}}") == {
        "web.yaml"
    }


@pytest.mark.parametrize(
    "secrets",
    [
        "encryption: {encryptedSecrets: {pw: CLOSED}}",
        "encryption: {EncryptedSecrets: {pw: CLOSED}, decryptionTargets: [source.yaml]}",
        "encryptedSecrets: {pw: CLOSED}",
    ],
)
def test_a_file_that_others_are_attached_to_holds_secrets_where_there_are_any(
    folder: Path, secrets: str
) -> None:
    (folder / "web.yaml").write_text("password: hush")
    (folder / "other.yaml").write_text("name: web")
    attachment = "attachment: {sources: {conf: source.yaml}, targets: [./web.yaml]}"

    assert list_holders(folder, f"spec: {{{secrets}, {attachment}}}") == {"web.yaml"}
    assert list_holders(folder, f"spec: {{{attachment}}}") == set(), "there are no secrets"
