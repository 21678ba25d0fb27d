# SPDX-License-Identifier: Apache-2.0
"""The keys of `secretManagement`: read once, refused before a secret needs them."""

import base64
from pathlib import Path

import pytest

from pipecd_model.config import load_piped
from pipecd_model.config.piped import SecretManagementConfig
from pipecd_model.errors import ConfigError
from pipecd_model.secrets import KeyPair, Sealer
from pipecd_piped.secrets import read_keys

OLD, NEW = KeyPair.new(1024), KeyPair.new(1024)

HEAD = """
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: p
  pipedID: i
  pipedKeyData: a2V5
  apiAddress: host:443
"""


def management(**config: str) -> SecretManagementConfig:
    lines = "".join(f"      {key}: {value!r}\n" for key, value in config.items())
    text = f"{HEAD}  secretManagement:\n    type: KEY_PAIR\n    config:\n{lines}"
    found = load_piped(text, file="piped.yaml").config.secret_management
    assert found is not None
    return found


def coded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_without_management_nothing_is_opened() -> None:
    assert read_keys(None) is None


def test_keys_may_stand_in_files_or_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(NEW.private)
    given = management(privateKeyFile=str(tmp_path / "private"), publicKeyData=coded(NEW.public))

    keys = read_keys(given)

    assert keys is not None
    assert keys.opener.open(Sealer(keys.public.encode()).seal("hunter22")) == "hunter22"


def test_while_keys_are_changed_both_open() -> None:
    keys = read_keys(
        management(
            privateKeyData=coded(NEW.private),
            oldPrivateKeyData=coded(OLD.private),
            publicKeyData=coded(NEW.public),
        )
    )

    assert keys is not None
    assert keys.public == NEW.public.decode()
    assert [keys.opener.open(Sealer(each.public).seal("x")) for each in (OLD, NEW)] == ["x", "x"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"privateKeyData": coded(OLD.private), "publicKeyData": coded(NEW.public)},
            "do not belong together",
        ),
        (
            {"privateKeyFile": "/nowhere/key", "publicKeyData": coded(NEW.public)},
            "cannot read privateKeyFile '/nowhere/key'",
        ),
        (
            {"privateKeyData": coded(b"no key"), "publicKeyData": coded(NEW.public)},
            "the private key cannot be used",
        ),
        (
            {"privateKeyData": coded(NEW.private), "publicKeyData": coded(NEW.private)},
            "the public key cannot be used",
        ),
        ({"privateKeyData": coded(NEW.private), "publicKeyData": "?"}, "publicKeyData"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(config: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_keys(management(**config))
