# SPDX-License-Identifier: Apache-2.0
"""`pipectl encrypt` and `pipectl keygen`: with a key at hand, and through a control plane."""

import asyncio
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipecd_model.config import load_piped
from pipecd_model.secrets import BadKeyError, KeyPair, Opener, seal
from pipecd_model.secrets.cipher import as_bytes
from pipecd_pipectl.cli import cli
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.rpc import Endpoints, rpc, serving

PIPECTL = Path(sys.executable).parent / "pipectl"


@pytest.fixture(scope="module")
def pair() -> KeyPair:
    return KeyPair.new(2048)


@pytest.fixture
def key(pair: KeyPair, tmp_path: Path) -> str:
    (tmp_path / "public.pem").write_bytes(pair.public)
    return str(tmp_path / "public.pem")


def encrypt(*arguments: str, secret: bytes = b"s3cret") -> Result:
    return CliRunner().invoke(cli, ["encrypt", *arguments], input=secret)


def test_a_secret_is_closed_with_a_public_key(pair: KeyPair, key: str) -> None:
    done = encrypt("--public-key-file", key)

    assert done.exit_code == 0
    assert Opener(pair.private).open(done.stdout) == "s3cret"
    assert done.stderr == ""


def test_a_secret_comes_from_a_file(pair: KeyPair, key: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\x00\xff binary")

    done = encrypt("--public-key-file", key, "--input-file", str(tmp_path / "secret"))

    assert as_bytes(Opener(pair.private).open(done.stdout)) == b"\x00\xff binary"


def test_a_secret_can_be_encoded_first(pair: KeyPair, key: str) -> None:
    done = encrypt("--public-key-file", key, "--use-base64-encoding")

    assert Opener(pair.private).open(done.stdout) == "czNjcmV0"


def test_a_line_break_at_the_end_is_kept_and_mentioned(pair: KeyPair, key: str) -> None:
    done = encrypt("--public-key-file", key, secret=b"s3cret\n")

    assert Opener(pair.private).open(done.stdout) == "s3cret\n"
    assert "ends with a line break" in done.stderr


@pytest.mark.parametrize(
    ("secret", "message"),
    [(b"", "the secret is empty"), (b"x" * (10 * 1024 * 1024 + 1), "larger than 10 MB")],
)
def test_a_secret_has_a_sensible_size(key: str, secret: bytes, message: str) -> None:
    done = encrypt("--public-key-file", key, secret=secret)

    assert done.exit_code == 2
    assert message in done.stderr


def test_ten_megabytes_are_closed(pair: KeyPair, key: str) -> None:
    secret = b"x" * (10 * 1024 * 1024)

    assert len(Opener(pair.private).open(encrypt("--public-key-file", key, secret=secret).stdout))


@pytest.mark.parametrize("both", [True, False])
def test_it_takes_a_key_or_a_piped(key: str, both: bool) -> None:
    arguments = ["--public-key-file", key, "--piped-id", "p1"] if both else []

    done = encrypt(*arguments)

    assert done.exit_code == 2
    assert "one of --piped-id and --public-key-file" in done.stderr


def test_a_private_key_is_refused(pair: KeyPair, tmp_path: Path) -> None:
    (tmp_path / "private.pem").write_bytes(pair.private)

    done = encrypt("--public-key-file", str(tmp_path / "private.pem"))

    assert isinstance(done.exception, BadKeyError)


def test_a_piped_needs_a_control_plane() -> None:
    done = encrypt("--piped-id", "p1")

    assert done.exit_code == 2
    assert "--address" in done.stderr


class Api:
    """A control plane as far as this command needs one."""

    def __init__(self, pair: KeyPair) -> None:
        encryption = Piped.SecretEncryption(type="KEY_PAIR", public_key=pair.public.decode())
        self._piped = Piped(id="p1", secret_encryption=encryption)

    @rpc("Encrypt")
    async def encrypt(self, _: object, request: pb.EncryptRequest) -> pb.EncryptResponse:
        closed = seal(self._piped, request.plaintext, base64=request.base64_encoding)
        return pb.EncryptResponse(ciphertext=closed)


async def caller(*_: object) -> None:
    return None


async def through(pair: KeyPair, secret: bytes, *arguments: str) -> tuple[int | None, str, str]:
    service = pb.DESCRIPTOR.services_by_name["APIService"]
    others = [method.name for method in service.methods if method.name != "Encrypt"]
    endpoints = Endpoints(admit=caller)
    endpoints.add(service, Api(pair), unimplemented=others)
    async with serving(endpoints, "127.0.0.1:0") as port, asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            *(PIPECTL, "encrypt", "--address", f"127.0.0.1:{port}", "--insecure"),
            *("--api-key", "some.key", "--piped-id", "p1", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(secret)
    return process.returncode, stdout.decode(), stderr.decode()


async def test_the_control_plane_closes_a_secret_for_a_piped(pair: KeyPair) -> None:
    code, closed, told = await through(pair, b"s3cret")

    assert (code, told) == (0, "")
    assert Opener(pair.private).open(closed) == "s3cret"


async def test_bytes_go_to_the_control_plane_as_base64(pair: KeyPair) -> None:
    refused, _, told = await through(pair, b"\x00\xff")
    code, closed, _ = await through(pair, b"\x00\xff", "--use-base64-encoding")

    assert refused == 2
    assert "--use-base64-encoding" in told
    assert code == 0
    assert Opener(pair.private).open(closed) == "AP8="


def keygen(folder: Path, *arguments: str) -> Result:
    files = (
        "--private-key-file",
        str(folder / "private"),
        "--public-key-file",
        str(folder / "public"),
    )
    return CliRunner().invoke(cli, ["keygen", *files, "--bits", "2048", *arguments])


def test_a_new_pair_closes_and_opens(tmp_path: Path) -> None:
    assert keygen(tmp_path).exit_code == 0

    closed = encrypt("--public-key-file", str(tmp_path / "public")).stdout

    assert Opener((tmp_path / "private").read_bytes()).open(closed) == "s3cret"


def test_only_its_owner_reads_the_private_half(tmp_path: Path) -> None:
    keygen(tmp_path)

    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_it_prints_what_goes_into_the_piped_file(tmp_path: Path) -> None:
    printed = keygen(tmp_path).stdout
    section = "".join(f"  {line}\n" for line in printed.splitlines())
    text = (
        "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: p\n  pipedID: i\n"
        f"  pipedKeyData: aw==\n  apiAddress: h:1\n{section}"
    )

    management = load_piped(text, file="piped.yaml").config.secret_management

    assert management is not None
    assert management.config.private_key_file == str(tmp_path / "private")


@pytest.mark.parametrize("name", ["private", "public"])
def test_it_overwrites_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")

    done = keygen(tmp_path)

    assert done.exit_code == 2
    assert {file.name for file in tmp_path.iterdir()} == {name}
    assert (tmp_path / name).read_text() == "precious"
