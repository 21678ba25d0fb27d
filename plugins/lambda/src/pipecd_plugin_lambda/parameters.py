# SPDX-License-Identifier: Apache-2.0
"""A function manifest as the parameters of the API's operations. Pure.

A field that is gone from git is set back to what AWS gives a function without it; a field that git
never had is left to whoever set it. Variables and layers are those of git, always.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pipecd_aws import UnfitValueError, fit
from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_sdk import StageFailedError

MANAGED_BY: Final = "pipecd-dev-managed-by"
PIPED: Final = "pipecd-dev-piped"
APPLICATION: Final = "pipecd-dev-application"
COMMIT: Final = "pipecd-dev-commit-hash"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_ALWAYS: Final[Mapping[str, Any]] = MappingProxyType(
    {"Environment": {"Variables": {}}, "Layers": []}
)
_RESETS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **_ALWAYS,
        "DeadLetterConfig": {"TargetArn": ""},
        "Description": "",
        "EphemeralStorage": {"Size": 512},
        "FileSystemConfigs": [],
        "ImageConfig": {},
        "KMSKeyArn": "",
        "LoggingConfig": {"LogFormat": "Text"},
        "MemorySize": 128,
        "SnapStart": {"ApplyOn": "None"},
        "Timeout": 3,
        "TracingConfig": {"Mode": "PassThrough"},
        "VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []},
    }
)
"""What AWS gives a function that is made without the field."""
_CODE_FIELDS: Final = frozenset(
    {"Code", "FunctionName", "PackageType", "Publish", "PublishTo", "Tags", "CodeSigningConfigArn"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParameters:
    """A manifest in the shape of the API."""

    created: Mapping[str, Any]
    """What CreateFunction takes, without the code."""
    unknown: list[str] = field(default_factory=list)
    """Fields that the API has not."""

    def for_update(
        self,
        shape: Any,
        previous: "FunctionParameters | None" = None,
        ran: Mapping[str, Any] = _NOTHING,
    ) -> dict[str, Any]:
        """Returns what UpdateFunctionConfiguration takes.

        `previous` had fields to be reset: to what they were in `ran`, else to AWS's default.
        """
        had = previous.created if previous is not None else {}
        given = {
            **{key: ran.get(key, _RESETS[key]) for key in had if key in _RESETS},
            **_ALWAYS,
            **{k: v for k, v in self.created.items() if k not in _CODE_FIELDS},
        }
        if self.created.get("PackageType") == "Image":
            given = {k: v for k, v in given.items() if k != "Layers"}  # images have none
        return {key: value for key, value in given.items() if key in shape.members}

    @property
    def architectures(self) -> dict[str, Any]:
        """Returns the part that goes with the code."""
        given = self.created.get("Architectures")
        return {"Architectures": given} if given else {}


def fit_manifest(manifest: FunctionManifest, shape: Any) -> FunctionParameters:
    """Returns the manifest in the shape of CreateFunction. Raises StageFailedError."""
    try:
        fitted, unknown = fit(manifest.fields, shape)
    except UnfitValueError as error:
        raise StageFailedError(
            f"{manifest.options.input.function_manifest_file}: spec.{error}"
        ) from None
    fitted["PackageType"] = "Image" if manifest.image else "Zip"
    return FunctionParameters(created=fitted, unknown=unknown)


def fit_configuration(configuration: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """Returns what AWS tells of a function as its operations take it, as far as they do."""
    try:
        return fit(configuration, shape)[0]
    except UnfitValueError:
        return {}


def fit_url(manifest: FunctionManifest, shape: Any) -> dict[str, Any]:
    """Returns the options of the alias's URL. Raises StageFailedError."""
    file = manifest.options.input.function_manifest_file
    try:
        fitted, unknown = fit(manifest.url or {}, shape)
    except UnfitValueError as error:
        raise StageFailedError(f"{file}: spec.functionUrl.{error}") from None
    if unknown:
        raise StageFailedError(f"{file}: spec.functionUrl has no {', '.join(unknown)}")
    fitted.setdefault("AuthType", "AWS_IAM")
    return fitted


def make_tags(manifest: FunctionManifest, *, piped_id: str, application_id: str) -> dict[str, str]:
    """Returns the tags of a function: those of git, and those by which it is known as ours."""
    return {
        **manifest.tags,
        MANAGED_BY: "piped",
        PIPED: piped_id,
        APPLICATION: application_id,
        COMMIT: manifest.commit,
    }
