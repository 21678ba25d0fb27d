# SPDX-License-Identifier: Apache-2.0
"""What an application file says about its application, as the control plane takes it. Pure."""

from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_wire.model import common_pb2
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.common_pb2 import ApplicationInfo
from piped.source import ApplicationPlace

_ROOT: Final = "./"
"""The root of a repository as a path: the wire wants one of two characters at least."""

_OLD_KINDS: Final = {
    "KubernetesApp": common_pb2.KUBERNETES,
    "TerraformApp": common_pb2.TERRAFORM,
    "LambdaApp": common_pb2.LAMBDA,
    "CloudRunApp": common_pb2.CLOUDRUN,
    "ECSApp": common_pb2.ECS,
}


def info_of(application: Application, config: ApplicationConfig) -> ApplicationInfo:
    """A registered application as its file has it; a name that the file lacks stays."""
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
    """An application that nobody has registered yet."""
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
