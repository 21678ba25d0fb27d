# SPDX-License-Identifier: Apache-2.0
"""The cipher: what others have closed is opened, and what cannot be opened is said without it."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pipecd_model.errors import StateError
from pipecd_model.secrets import BadKeyError, CannotOpenError, KeyPair, Opener, Sealer, seal
from pipecd_model.secrets.cipher import as_bytes
from pipecd_wire.model.piped_pb2 import Piped

# Keys and closed texts made with Go's crypto/rsa, crypto/aes and crypto/x509.
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())
TEXTS = ["a", "s3cret", "", "quotes \" ' $(x)\nand lines\n", "日本語", "x" * 100_000]


@pytest.fixture(scope="module")
def pair() -> KeyPair:
    return KeyPair.new(2048)


@pytest.mark.parametrize("form", ["private_pkcs8", "private_pkcs1"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["bits"]))
def test_what_go_has_closed_is_opened(vector: dict[str, Any], form: str) -> None:
    opener = Opener(vector[form].encode())

    opened = {as_bytes(opener.open(closed)).hex() for closed in vector["closed"].values()}

    assert opened == vector["closed"].keys()


@pytest.mark.parametrize("form", ["public_pkix", "public_pkcs1"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:10])
def test_what_is_closed_is_opened(form: str, text: str) -> None:
    vector = VECTORS[0]

    closed = Sealer(vector[form].encode()).seal(text)

    assert Opener(vector["private_pkcs8"].encode()).open(closed) == text


def test_the_closed_form_is_the_one_everybody_knows(pair: KeyPair) -> None:
    data = base64.b64decode(Sealer(pair.public).seal("s3cret"), validate=True)

    assert data[:2] == (256).to_bytes(2, "big")
    assert len(data) == 2 + 256 + len("s3cret") + 16


def test_the_same_text_never_looks_the_same(pair: KeyPair) -> None:
    sealer = Sealer(pair.public)

    assert sealer.seal("s3cret") != sealer.seal("s3cret")


def test_bytes_that_are_no_utf8_survive(pair: KeyPair) -> None:
    raw = bytes(range(256))

    assert as_bytes(Opener(pair.private).open(Sealer(pair.public).seal(raw))) == raw


def test_line_breaks_in_the_closed_text_do_not_matter(pair: KeyPair) -> None:
    closed = Sealer(pair.public).seal("s3cret")
    broken = "\n".join(closed[start : start + 64] for start in range(0, len(closed), 64))

    assert Opener(pair.private).open(f" {broken}\r\n") == "s3cret"


def test_both_keys_open_while_they_are_changed(pair: KeyPair) -> None:
    old = VECTORS[0]
    opener = Opener(pair.private, old["private_pkcs8"].encode())

    assert opener.open(Sealer(old["public_pkix"].encode()).seal("old")) == "old"
    assert opener.open(Sealer(pair.public).seal("new")) == "new"


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_another_key_does_not_open(pair: KeyPair, number: int) -> None:
    closed = Sealer(VECTORS[number]["public_pkix"].encode()).seal("s3cret")

    with pytest.raises(CannotOpenError, match="for another key") as caught:
        Opener(pair.private).open(closed)

    assert "pipectl encrypt" in caught.value.hint


@pytest.mark.parametrize("text", ["not base64!", "ünïcode", "a"])
def test_what_is_not_base64_is_told(pair: KeyPair, text: str) -> None:
    with pytest.raises(CannotOpenError, match="not base64") as caught:
        Opener(pair.private).open(text)

    assert text not in str(caught.value).replace("it is not base64", "")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\xff\xffabc", b"\0\1" + b"x" * 16])
def test_what_is_not_a_closed_secret_is_told(pair: KeyPair, data: bytes) -> None:
    with pytest.raises(CannotOpenError, match="not a closed secret"):
        Opener(pair.private).open(base64.b64encode(data).decode())


def test_a_changed_text_is_told(pair: KeyPair) -> None:
    data = bytearray(base64.b64decode(Sealer(pair.public).seal("s3cret")))
    data[-1] ^= 1

    with pytest.raises(CannotOpenError, match="changed after it was closed"):
        Opener(pair.private).open(base64.b64encode(data).decode())


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    lock = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def test_keys_that_cannot_be_used_are_told(pair: KeyPair) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    locked = pem(rsa.generate_private_key(65537, 2048), b"password")

    for private, reason, hint in (
        (b"text", "not a private key", "-----BEGIN"),
        (pair.public, "not a private key", "public half"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private", ""),
        (pem(curve), "not an RSA key", "keygen"),
        (locked, "locked with a password", "without"),
    ):
        with pytest.raises(BadKeyError, match=reason) as caught:
            Opener(private)
        assert hint in caught.value.hint
    for public, reason in (
        (b"text", "not a public key"),
        (pair.private, "this is a private key"),
    ):
        with pytest.raises(BadKeyError, match=reason):
            Sealer(public)
    with pytest.raises(BadKeyError, match="no private key"):
        Opener()


def test_a_pair_does_not_show_its_private_half(pair: KeyPair) -> None:
    assert "PRIVATE" not in repr(pair)


def test_a_secret_is_closed_for_the_key_that_a_piped_reported(pair: KeyPair) -> None:
    piped = Piped(id="p1")
    piped.secret_encryption.type = "KEY_PAIR"
    piped.secret_encryption.public_key = pair.public.decode()

    opener = Opener(pair.private)

    assert opener.open(seal(piped, "s3cret")) == "s3cret"
    assert opener.open(seal(piped, "s3cret", base64=True)) == "czNjcmV0"


@pytest.mark.parametrize("kind", ["", "NONE", "GCP_KMS", "AWS_KMS"])
def test_a_piped_without_a_key_pair_takes_no_secrets(kind: str) -> None:
    piped = Piped(id="p1")
    piped.secret_encryption.type = kind

    with pytest.raises(StateError, match="'p1' has reported no key"):
        seal(piped, "s3cret")


def test_a_piped_with_a_broken_key_is_told() -> None:
    piped = Piped(id="p1")
    piped.secret_encryption.type = "KEY_PAIR"
    piped.secret_encryption.public_key = "nonsense"

    with pytest.raises(StateError, match="cannot be used"):
        seal(piped, "s3cret")


def test_nothing_heavy_is_loaded_before_there_is_a_key() -> None:
    program = (
        "import sys; from pipecd_model.secrets import Opener, Masker, open_command;"
        "heavy = ('cryptography', 'pipecd_model.templates.engine', 'yaml');"
        "print([name for name in heavy if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
