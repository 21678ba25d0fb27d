# SPDX-License-Identifier: Apache-2.0
"""The definitions of a commit: task and service, read from its files and checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_ecs.config import EcsOptions
from pipecd_sdk import InvalidFileError, Source
from pipecd_sdk.kit.images import parse_image
from pipecd_sdk.kit.manifests import find_field, read_manifest_file

EXTERNAL: Final = "EXTERNAL"
ROLLING: Final = "ECS"
_ALIASES: Final = {"clusterarn": "cluster", "rolearn": "role"}
"""Names that upstream's files have, and the API's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """What a commit wants to run."""

    task: Mapping[str, Any]
    service: Mapping[str, Any] | None
    """None for a standalone task."""
    options: EcsOptions
    commit: str
    hides_values: bool
    """Opened secrets were put into the files: values of variables are shown to nobody."""

    @property
    def service_name(self) -> str:
        return str(find_field(self.service or {}, "serviceName") or "")

    @property
    def cluster(self) -> str:
        if self.service is None:
            return self.options.input.cluster_arn
        return str(find_field(self.service, "cluster") or "")

    @property
    def desired_count(self) -> int | None:
        """Returns how many tasks git wants; None leaves it to whoever scales the service."""
        value = find_field(self.service or {}, "desiredCount")
        try:
            return int(value) or None if value is not None else None
        except (TypeError, ValueError):
            raise InvalidFileError("desiredCount of the service definition is no number") from None

    @property
    def controller(self) -> str:
        given = find_field(self.service or {}, "deploymentController")
        kind = find_field(given, "type") if isinstance(given, Mapping) else None
        return str(kind or ROLLING).upper()


def read_definitions(source: Source) -> Definitions:
    """Returns the definitions of a commit. Raises InvalidFileError. Blocks: it reads files."""
    options: EcsOptions = source.options
    given = options.input
    task = read_manifest_file(
        source,
        given.task_definition_file,
        what="the task definition",
        option="input.taskDefinitionFile",
    )
    service = None
    if given.service_definition_file:
        service = read_manifest_file(
            source,
            given.service_definition_file,
            what="the service definition",
            option="input.serviceDefinitionFile",
        )
    read = Definitions(
        task=task.value,
        service=_use_api_names(service.value) if service is not None else None,
        options=options,
        commit=source.commit_hash,
        hides_values=task.holds_secrets or (service is not None and service.holds_secrets),
    )
    _check(read)
    return read


def _use_api_names(service: Mapping[str, Any]) -> dict[str, Any]:
    return {_ALIASES.get(str(key).lower(), str(key)): value for key, value in service.items()}


def _check(read: Definitions) -> None:
    if not find_field(read.task, "family"):
        raise InvalidFileError("the task definition has no family", hint="give it a name there")
    if read.service is None:
        if not read.cluster and read.options.input.run_standalone_task:
            raise InvalidFileError(
                "a standalone task needs input.clusterArn",
                hint="or name a service definition with input.serviceDefinitionFile",
            )
        return
    if not read.service_name:
        raise InvalidFileError("the service definition has no serviceName")
    if read.controller not in {EXTERNAL, ROLLING}:
        raise InvalidFileError(
            f"the service definition has the deployment controller {read.controller!r}",
            hint="EXTERNAL for canaries, ECS for rolling updates",
        )


def list_containers(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and image of each container."""
    containers = find_field(task, "containerDefinitions")
    for each in containers if isinstance(containers, list) else ():
        if isinstance(each, Mapping):
            image = find_field(each, "image")
            if isinstance(image, str) and image:
                yield str(find_field(each, "name") or ""), image


def list_images(task: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns name, version and text of each image, each once."""
    images = (parse_image(text) for text in dict.fromkeys(i for _, i in list_containers(task)))
    return [(each.name, each.version, each.text) for each in images]
