# SPDX-License-Identifier: Apache-2.0
"""The description of a function in git: `kind: LambdaFunction`, read and checked.

Every field of the API passes through under its own name, in any case; a few have the shorter names
of upstream's files. What belongs to the alias or to the function as a whole stands beside them:
`provisionedConcurrency`, `reservedConcurrency`, `functionUrl`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_lambda.config import LambdaOptions
from pipecd_plugin_lambda.manifest_check import find_faults
from pipecd_sdk import InvalidFileError, Source
from pipecd_sdk.kit.manifests import find_field, read_manifest_file

API_VERSION: Final = "pipecd.dev/v1beta1"
KIND: Final = "LambdaFunction"
_CODE: Final = frozenset({"image", "s3bucket", "s3key", "s3objectversion", "source"})
_BESIDE: Final = frozenset({"provisionedconcurrency", "reservedconcurrency", "functionurl", "tags"})
_API_NAMES: Final = {
    "name": "FunctionName",
    "memory": "MemorySize",
    "environments": "Environment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """Where the code is that a package is built of."""

    git: str
    ref: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionManifest:
    """What a commit wants the function to be."""

    spec: Mapping[str, Any]
    """As the author wrote it."""
    options: LambdaOptions
    commit: str
    hides_values: bool = False
    """Opened secrets were put into the file: values of variables are shown to nobody."""

    @property
    def name(self) -> str:
        return str(find_field(self.spec, "name"))

    @property
    def alias(self) -> str:
        """Returns the alias that callers use."""
        return self.options.input.alias

    @property
    def image(self) -> str:
        return str(find_field(self.spec, "image") or "")

    @property
    def s3(self) -> dict[str, str]:
        """Returns the place of the package in S3, with the API's names; empty without one."""
        if self.image or not find_field(self.spec, "s3Bucket"):
            return {}
        keys = ("S3Bucket", "S3Key", "S3ObjectVersion")
        return {key: str(value) for key in keys if (value := find_field(self.spec, key))}

    @property
    def source(self) -> GitSource | None:
        given = find_field(self.spec, "source")
        if self.image or self.s3 or not isinstance(given, Mapping):
            return None
        return GitSource(
            git=str(find_field(given, "git")),
            ref=str(find_field(given, "ref")),
            path=str(find_field(given, "path") or ""),
        )

    @property
    def tags(self) -> dict[str, str]:
        given = find_field(self.spec, "tags")
        return {str(k): str(v) for k, v in given.items()} if isinstance(given, Mapping) else {}

    @property
    def provisioned(self) -> int:
        """Returns how many environments are kept ready behind the alias; 0 for none."""
        return int(find_field(self.spec, "provisionedConcurrency") or 0)

    @property
    def reserved(self) -> int | None:
        """Returns how many may run at once; None leaves it open."""
        given = find_field(self.spec, "reservedConcurrency")
        return None if given is None else int(given)

    @property
    def url(self) -> Mapping[str, Any] | None:
        """Returns the options of the alias's URL; None when it has none."""
        given = find_field(self.spec, "functionUrl")
        return given if isinstance(given, Mapping) else None

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of the configuration, with names of the API where they differ."""
        found: dict[str, Any] = {}
        for key, value in self.spec.items():
            lower = str(key).lower()
            if lower in _CODE or lower in _BESIDE or value is None:
                continue
            name = _API_NAMES.get(lower, str(key))
            if lower == "environments":
                value = {"Variables": value}  # noqa: PLW2901 - upstream's files have them bare
            elif lower == "architectures" and isinstance(value, list):
                value = [_name_of(each) for each in value]  # noqa: PLW2901 - see above
            found[name] = value
        return found


def _name_of(item: Any) -> Any:
    return find_field(item, "name") if isinstance(item, Mapping) else item


def read_manifest(source: Source) -> FunctionManifest:
    """Returns the function of a commit. Raises InvalidFileError. Reads a file: not on the loop."""
    options: LambdaOptions = source.options
    name = options.input.function_manifest_file
    file = read_manifest_file(
        source, name, what="the function manifest", option="input.functionManifestFile"
    )
    document = file.value
    spec = find_field(document, "spec")
    kind = find_field(document, "kind")
    if kind != KIND or find_field(document, "apiVersion") != API_VERSION:
        raise InvalidFileError(
            f"{name}: not the description of a function",
            hint=f"it begins with apiVersion: {API_VERSION} and kind: {KIND}",
        )
    faults = find_faults(spec)
    if faults or not isinstance(spec, Mapping):
        raise InvalidFileError(f"{name}: {'; '.join(faults)}")
    return FunctionManifest(
        spec=spec,
        options=options,
        commit=source.commit_hash,
        hides_values=file.holds_secrets,
    )
