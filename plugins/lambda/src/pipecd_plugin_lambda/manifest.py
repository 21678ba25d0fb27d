# SPDX-License-Identifier: Apache-2.0
"""The description of a function in git: `kind: LambdaFunction`, read and checked.

Every field of the API passes through under its own name, in any case; a few have the shorter names
of upstream's files. What belongs to the alias or to the function as a whole stands beside them:
`provisionedConcurrency`, `reservedConcurrency`, `functionUrl`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_lambda.config import LambdaOptions
from pipecd_plugin_lambda.manifest_check import find_faults
from pipecd_sdk import Source, StageFailedError

API_VERSION: Final = "pipecd.dev/v1beta1"
KIND: Final = "LambdaFunction"
LARGEST_FILE: Final = 1024 * 1024
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


def find_field(value: Mapping[str, Any], name: str) -> Any:
    """Returns a field whose name may be written in any case, None without it."""
    if name in value:
        return value[name]
    return next((item for key, item in value.items() if str(key).lower() == name.lower()), None)


def read_manifest(source: Source) -> FunctionManifest:
    """Returns the function of a commit. Raises StageFailedError. Reads a file: not on the loop."""
    from pipecd_sdk.kit.opened_files import list_opened_files  # noqa: PLC0415 - needs a parser

    options: LambdaOptions = source.options
    name = options.input.function_manifest_file
    document = _read_file(source.directory, name)
    spec = find_field(document, "spec")
    kind = find_field(document, "kind")
    if kind != KIND or find_field(document, "apiVersion") != API_VERSION:
        raise StageFailedError(
            f"{name}: not the description of a function",
            hint=f"it begins with apiVersion: {API_VERSION} and kind: {KIND}",
        )
    faults = find_faults(spec)
    if faults or not isinstance(spec, Mapping):
        raise StageFailedError(f"{name}: {'; '.join(faults)}")
    return FunctionManifest(
        spec=spec,
        options=options,
        commit=source.commit_hash,
        hides_values=str(Path(name)) in list_opened_files(source),
    )


def _read_file(folder: Path, name: str) -> Mapping[str, Any]:
    from pipecd_sdk.kit import yaml  # noqa: PLC0415 - a plugin that waits needs no parser

    root = folder.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise StageFailedError(
            f"the function manifest {name!r} leads out of the application's folder",
            hint="it may be a link; name a real file",
        )
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise StageFailedError(f"the function manifest {name!r} is larger than 1 MiB")
        found = yaml.load(path.read_bytes())
    except OSError:
        raise StageFailedError(
            f"the function manifest {name!r} is not a file of the commit",
            hint="name it with input.functionManifestFile",
        ) from None
    except yaml.YamlError as error:
        raise StageFailedError(f"{name}: {error}") from None
    if not isinstance(found, Mapping):
        raise StageFailedError(f"{name}: it must be an object")
    return found
