# SPDX-License-Identifier: Apache-2.0
"""Builds the ApplicationInfo messages that report an application file. Pure."""

from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_piped.source import ApplicationPlace
from pipecd_wire.model import common_pb2
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.common_pb2 import ApplicationInfo

_ROOT: Final = "./"
"""The root of a repository as a path: validation requires at least two characters."""

_OLD_KINDS: Final = {
    "KubernetesApp": common_pb2.KUBERNETES,
    "TerraformApp": common_pb2.TERRAFORM,
    "LambdaApp": common_pb2.LAMBDA,
    "CloudRunApp": common_pb2.CLOUDRUN,
    "ECSApp": common_pb2.ECS,
}


def info_of(application: Application, config: ApplicationConfig) -> ApplicationInfo:
    """Returns the info of a registered application from its file; a missing name stays."""
    git_path = application.git_path
    return ApplicationInfo(
        id=application.id,
        name=config.name or application.name,
        kind=_OLD_KINDS.get(config.kind, application.kind),
        labels=config.labels,
        repo_id=git_path.repo.id,
        path=git_path.path,
        config_filename=git_path.config_filename,
        piped_id=application.piped_id,
        description=config.description,
    )


def build_unregistered_info(
    piped_id: str, repository_id: str, place: ApplicationPlace, config: ApplicationConfig
) -> ApplicationInfo:
    """Returns the info of an application that is not registered yet, for suggestions."""
    folder = place.folder or _ROOT
    return ApplicationInfo(
        name=config.name,
        kind=_OLD_KINDS.get(config.kind, common_pb2.KUBERNETES),
        labels=config.labels,
        repo_id=repository_id,
        path=f"{folder}/" if len(folder) == 1 else folder,
        config_filename=place.filename,
        piped_id=piped_id,
        description=config.description,
    )
