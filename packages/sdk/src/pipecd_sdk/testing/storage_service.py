# SPDX-License-Identifier: Apache-2.0
"""The part of FakePiped that installs tools and keeps what outlives a deployment."""

import re
import tempfile
from pathlib import Path
from typing import Final, Protocol

from pipecd_runtime import process as door
from pipecd_sdk.tools import this_platform
from pipecd_wire.pluginservice import service_pb2
from pipecd_wire.rpc import StatusError, rpc

_FIELD: Final = re.compile(r"{{\s*\.(Name|Version|OutPath|TmpDir|Os|Arch)\s*}}")


class Storage(Protocol):
    """What FakePiped keeps."""

    shared_metadata: dict[tuple[str, str], str]
    shared_objects: dict[tuple[str, str, str], bytes]
    tools: Path | None


class StorageService:
    """Tools, shared objects, shared metadata."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @rpc("InstallTool")
    async def install_tool(
        self, _caller: object, request: service_pb2.InstallToolRequest
    ) -> service_pb2.InstallToolResponse:
        if self._storage.tools is None:
            raise StatusError("FAILED_PRECONDITION", "the test has no folder for tools")
        path = self._storage.tools / f"{request.name}-{request.version}"
        if not path.exists():
            await _install(request, path)
        return service_pb2.InstallToolResponse(installed_path=str(path))

    @rpc("GetDeploymentSharedMetadata")
    async def get_shared(
        self, _caller: object, request: service_pb2.GetDeploymentSharedMetadataRequest
    ) -> service_pb2.GetDeploymentSharedMetadataResponse:
        value = self._storage.shared_metadata.get((request.deployment_id, request.key))
        return service_pb2.GetDeploymentSharedMetadataResponse(
            value=value or "", found=value is not None
        )

    @rpc("GetApplicationSharedObject")
    async def get_object(
        self, _caller: object, request: service_pb2.GetApplicationSharedObjectRequest
    ) -> service_pb2.GetApplicationSharedObjectResponse:
        key = (request.application_id, request.plugin_name, request.key)
        if key not in self._storage.shared_objects:
            raise StatusError("NOT_FOUND", "there is no such object")
        return service_pb2.GetApplicationSharedObjectResponse(
            object=self._storage.shared_objects[key]
        )

    @rpc("PutApplicationSharedObject")
    async def put_object(
        self, _caller: object, request: service_pb2.PutApplicationSharedObjectRequest
    ) -> service_pb2.PutApplicationSharedObjectResponse:
        key = (request.application_id, request.plugin_name, request.key)
        self._storage.shared_objects[key] = request.object
        return service_pb2.PutApplicationSharedObjectResponse()


async def _install(request: service_pb2.InstallToolRequest, path: Path) -> None:
    """Run an install script as piped does; of its template language only the fields are known."""
    system, _, architecture = this_platform().partition("/")
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "Name": request.name,
            "Version": request.version,
            "OutPath": str(Path(folder) / "out"),
            "TmpDir": folder,
            "Os": system,
            "Arch": architecture,
        }
        script = _FIELD.sub(lambda field: values[field[1]], request.install_script)
        if "{{" in script:
            raise StatusError("INVALID_ARGUMENT", "the install script uses an unknown field")
        process = await door.start(
            (*door.own("/bin/sh", "-c", "--"), door.word(script)),
            env=door.operator_environment(),
            cwd=Path(folder),
            stdout=door.PIPE,
            stderr=door.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise StatusError("INTERNAL", f"the script failed: {output.decode(errors='replace')}")
        _put(Path(values["OutPath"]), path)


def _put(made: Path, path: Path) -> None:
    if not made.is_file():
        raise StatusError("INTERNAL", "the install script left nothing at {{ .OutPath }}")
    path.write_bytes(made.read_bytes())
    path.chmod(0o755)
