# SPDX-License-Identifier: Apache-2.0
"""Objects in a bucket: the contract on a real server, and what a server answers otherwise."""

import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError, BlobsUnavailableError
from pipecd_controlplane.store.blobs.config import AwsProfile, KeyFiles, S3Bucket, WebIdentity
from pipecd_controlplane.store.blobs.open import open_blobs
from pipecd_controlplane.store.blobs.s3 import MARKER, S3Blobs
from pipecd_model.errors import ConfigError
from pipecd_test_support.aws.lab import REGION, AwsLab, run_aws_lab
from pipecd_test_support.blob_store_contract import BlobStoreContract, find_keys
from pipecd_test_support.buckets import BucketMaker


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("s3")) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: AwsLab) -> Iterator[AwsLab]:
    yield shared_lab
    shared_lab.forget()


@pytest.fixture
def buckets(lab: AwsLab, tmp_path: Path) -> BucketMaker:
    return BucketMaker(lab.url, tmp_path)


@pytest.fixture
async def blobs(buckets: BucketMaker) -> S3Blobs:
    return await opened(buckets.describe())


async def opened(config: S3Bucket) -> S3Blobs:
    found = await open_blobs(config)
    assert isinstance(found, S3Blobs)
    return found


class TestS3Blobs(BlobStoreContract):
    pass


async def test_two_prefixes_of_a_bucket_are_two_stores(buckets: BucketMaker) -> None:
    config = buckets.describe(prefix="team/one")
    one = await opened(config)
    other = await opened(buckets.describe(bucket=config.bucket, prefix="team/other/"))
    whole = await opened(buckets.describe(bucket=config.bucket))

    await one.put("logs/a", b"one")

    assert await find_keys(other) == set()
    assert "team/one/logs/a" in await find_keys(whole)


async def test_a_bucket_that_somebody_tidied_up_is_well(blobs: S3Blobs) -> None:
    """Else every server of it would be taken out of its balancer, for a file that holds nothing."""
    await blobs.delete(MARKER)

    await blobs.check()

    assert await blobs.find(MARKER) is not None


async def test_a_bucket_that_is_not_there_is_said(buckets: BucketMaker) -> None:
    with pytest.raises(BlobsRefusedError, match="there is no bucket 'nowhere' at http://") as said:
        await opened(buckets.describe(bucket="nowhere", create_bucket=False))
    assert "create it" in said.value.hint


async def test_a_bucket_is_made_only_where_the_configuration_wants_it(
    buckets: BucketMaker,
) -> None:
    store = await opened(buckets.describe(bucket="fresh"))
    again = await opened(buckets.describe(bucket="fresh"))

    await store.put("logs/a", b"one")
    assert await again.get("logs/a") == b"one"


async def test_credentials_that_are_refused_are_said_with_what_to_do(
    blobs: S3Blobs, lab: AwsLab
) -> None:
    lab.break_next("S3:GET", "deny")

    with pytest.raises(
        BlobsRefusedError, match="refuses these credentials: AccessDenied"
    ) as refused:
        await blobs.get("logs/a")
    assert "docs/security.md" in refused.value.hint


async def test_a_refusal_for_one_object_does_not_hide_the_next(blobs: S3Blobs, lab: AwsLab) -> None:
    """Without s3:ListBucket a bucket answers like this for an object that is missing."""
    await blobs.put("logs/b", b"one")

    lab.break_next("S3:HEAD", "deny", count=1)
    assert await blobs.holds_any(["logs/a", "logs/b"])

    lab.break_next("S3:HEAD", "deny", count=2)
    with pytest.raises(BlobsRefusedError, match="refuses these credentials"):
        await blobs.holds_any(["logs/a", "logs/b"])


async def test_a_busy_bucket_is_asked_again(blobs: S3Blobs, lab: AwsLab) -> None:
    await blobs.put("logs/a", b"one")
    lab.break_next("S3:GET", "fail", count=2)
    lab.break_next("S3:PUT", "fail", count=1)

    assert await blobs.get("logs/a") == b"one"
    await blobs.put("logs/b", b"two")


async def test_a_bucket_that_stays_busy_is_unavailable(blobs: S3Blobs, lab: AwsLab) -> None:
    lab.break_next("S3:GET", "fail", count=10)

    with pytest.raises(BlobsUnavailableError, match="does not answer: SlowDown"):
        await blobs.check()


async def test_an_address_where_nobody_listens_is_unavailable(buckets: BucketMaker) -> None:
    started = time.monotonic()
    with pytest.raises(BlobsUnavailableError, match=r"does not answer: .*error"):
        await opened(buckets.describe(endpoint="http://127.0.0.1:1", create_bucket=False))
    with pytest.raises(BlobsUnavailableError, match=r"cannot create .* does not answer") as said:
        await opened(buckets.describe(endpoint="http://127.0.0.1:1"))
    assert "X-Amz" not in str(said.value)
    assert time.monotonic() - started < 60


async def test_keys_come_from_a_profile_of_a_credentials_file(
    buckets: BucketMaker, tmp_path: Path
) -> None:
    file = tmp_path / "aws"
    file.write_text(
        "[default]\naws_access_key_id = a\n"
        "[logs]\naws_access_key_id = b\naws_secret_access_key = c\naws_session_token = d\n"
    )

    store = await opened(buckets.describe(credentials=AwsProfile(file=file, name="logs")))
    await store.put("logs/a", b"one")

    with pytest.raises(ConfigError, match=r"the profile 'default' in .* has no keys"):
        await opened(buckets.describe(credentials=AwsProfile(file=file)))
    with pytest.raises(ConfigError, match="has no profile 'other'"):
        await opened(buckets.describe(credentials=AwsProfile(file=file, name="other")))


async def test_a_file_that_is_no_credentials_file_is_named_and_not_shown(
    buckets: BucketMaker, tmp_path: Path
) -> None:
    file = tmp_path / "aws"
    file.write_text("my-secret-key\n")

    with pytest.raises(ConfigError, match="is no credentials file") as said:
        await opened(buckets.describe(credentials=AwsProfile(file=file)))
    assert "my-secret-key" not in said.value.with_hint()


async def test_a_key_file_that_is_missing_or_empty_is_named(
    buckets: BucketMaker, tmp_path: Path
) -> None:
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.write_text("\n")

    for file, why in ((empty, "is empty"), (missing, "No such file")):
        with pytest.raises(ConfigError, match=why):
            await opened(buckets.describe(credentials=KeyFiles(access_key=file, secret_key=empty)))


async def test_a_key_that_no_request_can_be_signed_with_is_refused_and_not_shown(
    buckets: BucketMaker, tmp_path: Path
) -> None:
    """The driver panics over it."""
    file = tmp_path / "keys"
    file.write_text("hunter\n2\n")
    with pytest.raises(ConfigError, match="a line break") as said:
        await opened(buckets.describe(credentials=KeyFiles(access_key=file, secret_key=file)))
    assert "hunter" not in said.value.with_hint()

    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = hunterä\n")
    with pytest.raises(ConfigError, match="that no key has") as said:
        await opened(buckets.describe(credentials=AwsProfile(file=file)))
    assert "hunter" not in said.value.with_hint()


async def test_a_role_without_its_token_is_said(buckets: BucketMaker, tmp_path: Path) -> None:
    identity = WebIdentity(
        role_arn="arn:aws:iam::123456789012:role/logs", token_file=tmp_path / "token"
    )

    with pytest.raises(BlobsUnavailableError, match="token"):
        await opened(buckets.describe(credentials=identity, region=REGION))


@pytest.fixture
def token_service(lab: AwsLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto's over TLS, without which the driver sends no token; this process trusts it."""
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    @Request.application
    def forward(request: Request) -> Response:
        # The driver sends the query of a URL; moto reads an action in a body alone.
        with urllib.request.urlopen(lab.url, request.query_string, 30) as answer:  # noqa: S310 - our own
            return Response(answer.read(), content_type="text/xml")

    server = make_server("127.0.0.1", 0, forward, threaded=True, ssl_context=context)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"https://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)  # a standard name, which the driver reads
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("token_service")
async def test_a_role_is_taken_on_with_the_token_in_a_file(
    lab: AwsLab, buckets: BucketMaker, tmp_path: Path
) -> None:
    """As a pod of Kubernetes does; its keys come from the token service, and are used for all."""
    token = tmp_path / "token"
    token.write_text("a.web.token")
    role = "arn:aws:iam::123456789012:role/logs"
    identity = WebIdentity(role_arn=role, token_file=token)

    blobs = await opened(buckets.describe(credentials=identity, region=REGION))
    await blobs.put("logs/a", b"one")

    assert await blobs.get("logs/a") == b"one"
    taken_on = lab.calls("AssumeRoleWithWebIdentity")
    assert taken_on
    for each in taken_on:
        assert each["parameters"]["RoleArn"] == role
        assert each["parameters"]["WebIdentityToken"] == "a.web.token"
    # moto's own, of a session; the keys of other tests are "test".
    assert {each["key"][:4] for each in lab.calls() if each["action"].startswith("S3:")} == {"ASIA"}
