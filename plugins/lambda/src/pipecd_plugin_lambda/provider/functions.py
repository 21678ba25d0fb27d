# SPDX-License-Identifier: Apache-2.0
"""The API of AWS Lambda, as far as stages need it: one function in one account."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_aws import AwsAccount, AwsError
from pipecd_plugin_lambda.traffic import Traffic, parse_alias
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.text import make_printable_line

SERVICE: Final = "lambda"
NOT_FOUND: Final = "ResourceNotFoundException"
CONFLICT: Final = "ResourceConflictException"
NO_PROVISIONED: Final = "ProvisionedConcurrencyConfigNotFoundException"
URL_OPTIONS: Final = ("AuthType", "Cors", "InvokeMode")
LONGEST_FAULT: Final = 300
_BUSY: Final = (CONFLICT,)
"""Another change of the function is still under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFunction:
    """A function as AWS has it."""

    configuration: Mapping[str, Any]
    code: Mapping[str, Any]
    tags: Mapping[str, str]
    tags_fault: str = ""
    """Why AWS did not tell the tags: they need a right of their own. Empty when it did."""
    reserved: int | None = None

    @property
    def arn(self) -> str:
        return str(self.configuration.get("FunctionArn", ""))

    @property
    def code_hash(self) -> str:
        return str(self.configuration.get("CodeSha256", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionApi:
    """The calls about one function. All raise AwsError."""

    account: AwsAccount
    name: str

    async def call(
        self,
        operation: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        settling: Collection[str] = (),
        repeatable: bool = True,
    ) -> Mapping[str, Any]:
        return await self.account.call(
            SERVICE,
            operation,
            {"FunctionName": self.name, **(parameters or {})},
            settling=settling,
            repeatable=repeatable,
        )

    async def find(
        self, operation: str, parameters: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Returns the answer of an operation, None when there is no such thing."""
        try:
            return await self.call(operation, parameters)
        except AwsError as error:
            if error.code in {NOT_FOUND, NO_PROVISIONED}:
                return None
            raise

    async def read_shape(self, operation: str) -> Any:
        """Returns what the API takes for an operation."""
        return await self.account.read_input_shape(SERVICE, operation)

    async def get(self, version: str = "") -> LiveFunction | None:
        """Returns the function, or one of its versions; None when there is none."""
        answer = await self.find("GetFunction", {"Qualifier": version} if version else None)
        if answer is None:
            return None
        configuration = answer.get("Configuration")
        if not isinstance(configuration, Mapping):
            raise StageFailedError("AWS's answer about the function is not understood")
        concurrency = answer.get("Concurrency")
        reserved = (
            concurrency.get("ReservedConcurrentExecutions")
            if isinstance(concurrency, Mapping)
            else None
        )
        return LiveFunction(
            configuration=configuration,
            code=answer.get("Code") or {},
            tags=answer.get("Tags") or {},
            tags_fault=_read_tags_fault(answer.get("TagsError")),
            reserved=reserved if isinstance(reserved, int) else None,
        )

    async def get_configuration(self, version: str = "") -> Mapping[str, Any]:
        """Returns the configuration of the function, or of one of its versions."""
        return await self.call(
            "GetFunctionConfiguration", {"Qualifier": version} if version else None
        )

    async def create(self, parameters: Mapping[str, Any]) -> None:
        """Makes the function; one that is there by now is left as it is."""
        try:
            await self.call("CreateFunction", parameters)
        except AwsError as error:
            # A lost answer, or a stage that is continued: the caller brings it up to date.
            if error.code != CONFLICT:
                raise

    async def update_configuration(self, parameters: Mapping[str, Any]) -> None:
        """Sets the configuration."""
        await self.call("UpdateFunctionConfiguration", parameters, settling=_BUSY)

    async def update_code(self, parameters: Mapping[str, Any]) -> str:
        """Sets the code and returns its hash."""
        answer = await self.call("UpdateFunctionCode", parameters, settling=_BUSY)
        return str(answer.get("CodeSha256", ""))

    async def publish(self, description: str, code_hash: str) -> tuple[str, str]:
        """Makes a version of what the function is now; returns its number and description.

        AWS makes none when nothing has changed since the last one: a repeated call does no harm.
        """
        answer = await self.call(
            "PublishVersion",
            {"Description": description, "CodeSha256": code_hash},
            settling=_BUSY,
        )
        return str(answer.get("Version", "")), str(answer.get("Description") or "")

    async def find_version(self, description: str, *, but: Collection[str] = ()) -> str | None:
        """Returns the last version with a description, None when there is none."""
        found = None
        async for each in self.account.list_all(
            SERVICE,
            "ListVersionsByFunction",
            {"FunctionName": self.name},
            items="Versions",
            token_in="Marker",  # noqa: S106 - a name, no password
            token_out="NextMarker",  # noqa: S106 - a name, no password
        ):
            version = str(each.get("Version", ""))
            if each.get("Description") == description and version not in but:
                found = version
        return found

    async def get_alias(self, alias: str) -> Traffic | None:
        """Returns how an alias splits the traffic, None when there is no such alias."""
        answer = await self.find("GetAlias", {"Name": alias})
        return parse_alias(answer) if answer is not None else None

    async def put_alias(self, alias: str, traffic: Traffic, *, exists: bool) -> None:
        """Sets how an alias splits the traffic."""
        parameters = {"Name": alias, **traffic.to_api()}
        if not exists:
            try:
                await self.call("CreateAlias", parameters)
            except AwsError as error:
                if error.code != CONFLICT:
                    raise
            else:
                return
        await self.call("UpdateAlias", parameters, settling=_BUSY)

    async def delete_alias(self, alias: str) -> None:
        """Removes an alias."""
        await self.find("DeleteAlias", {"Name": alias})

    async def set_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Adds tags, or changes them."""
        await self.account.call(SERVICE, "TagResource", {"Resource": arn, "Tags": dict(tags)})

    async def remove_tags(self, arn: str, keys: Collection[str]) -> None:
        """Removes tags."""
        await self.account.call(
            SERVICE, "UntagResource", {"Resource": arn, "TagKeys": sorted(keys)}
        )

    async def get_url(self, alias: str) -> Mapping[str, Any] | None:
        """Returns the URL of an alias and its options, None when it has none."""
        return await self.find("GetFunctionUrlConfig", {"Qualifier": alias})

    async def get_provisioned(self, alias: str) -> Mapping[str, Any] | None:
        """Returns what is kept ready behind an alias, None when nothing is."""
        return await self.find("GetProvisionedConcurrencyConfig", {"Qualifier": alias})


def _read_tags_fault(given: Any) -> str:
    if not isinstance(given, Mapping):
        return ""
    said = given.get("Message") or given.get("ErrorCode") or "no reason is given"
    return make_printable_line(str(said))[:LONGEST_FAULT]
