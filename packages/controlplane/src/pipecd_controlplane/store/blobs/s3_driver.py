# SPDX-License-Identifier: Apache-2.0
"""The driver of a bucket, and the one request that it does not have: to create the bucket."""

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httpx2
import obstore
from obstore.store import S3Store

from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError, BlobsUnavailableError
from pipecd_controlplane.store.blobs.config import S3Bucket, WebIdentity
from pipecd_controlplane.store.blobs.s3_credentials import make_credential_provider

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

REQUEST_SECONDS: Final = 20
CONNECT_SECONDS: Final = 5
RETRIES: Final = 3
RETRY_SECONDS: Final = 30

DEFAULT_REGION: Final = "us-east-1"
THERE_ALREADY: Final = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
LOCATION: Final = (
    '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
)


def make_store(config: S3Bucket, *, prefix: str = "") -> S3Store:
    """Returns the driver of a bucket. Nothing is sent yet."""
    settings: S3Config = {
        # Bucket names with dots do not fit the certificates of names with the bucket in front.
        "virtual_hosted_style_request": not config.endpoint and "." not in config.bucket,
        # One by one: not everything that speaks S3 can delete several at once.
        "disable_bulk_delete": True,
    }
    if config.region or config.endpoint:
        settings["region"] = config.region or DEFAULT_REGION
    if config.endpoint:
        settings["endpoint"] = config.endpoint
    provider = None
    if isinstance(config.credentials, WebIdentity):
        settings["role_arn"] = config.credentials.role_arn
        settings["web_identity_token_file"] = str(config.credentials.token_file)
        settings["role_session_name"] = "pipecd"
    elif config.credentials is not None:
        provider = make_credential_provider(config.credentials)
    client: ClientConfig = {
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "allow_http": config.endpoint.startswith("http://"),
        "user_agent": "pipecd",
    }
    retry: RetryConfig = {
        "max_retries": RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_SECONDS),
    }
    return S3Store(
        config.bucket,
        prefix=prefix.strip("/") or None,
        config=settings,
        client_options=client,
        retry_config=retry,
        credential_provider=provider,
    )


async def create_bucket(config: S3Bucket, place: str) -> None:
    """Creates the bucket; one that is there already is left as it is.

    Raises BlobsRefusedError, BlobsUnavailableError.
    """
    url = await obstore.sign_async(
        make_store(config), "PUT", "", timedelta(seconds=REQUEST_SECONDS * 2)
    )
    region = config.region or DEFAULT_REGION
    body = "" if region == DEFAULT_REGION else LOCATION.format(region=region)
    try:
        async with httpx2.AsyncClient(timeout=REQUEST_SECONDS) as client:
            answer = await client.put(url, content=body.encode())
    except httpx2.HTTPError as error:
        # The URL in what it says is signed: whoever has it can act with these credentials.
        raise BlobsUnavailableError(
            f"cannot create {place}: it does not answer ({type(error).__name__})",
            hint="see spec.filestore.config.endpoint, and whether the server can reach it",
        ) from None
    if answer.status_code < HTTPStatus.BAD_REQUEST:
        return
    if any(word in answer.text for word in THERE_ALREADY):
        return
    raise BlobsRefusedError(
        f"cannot create {place}: it answers with status {answer.status_code}",
        hint="create it by hand, or give these credentials the right s3:CreateBucket",
    )
