# SPDX-License-Identifier: Apache-2.0
"""The calls of Cloud Run's API, version 2, in one project and region.

Writes name what they expect: the etag of what was read, or the name of what does not exist. So each
may be repeated, and a second one is refused instead of done twice.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from pipecd_google.api import GoogleApi, RepeatedCall
from pipecd_google.errors import GoogleError, MissingResourceError

PAGE_SIZE: Final = "100"
MOST_PAGES: Final = 100
OPERATION: Final = re.compile(r"projects/[\w.:-]+/locations/[\w-]+/operations/[\w.-]+")

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRun:
    """Services, revisions and jobs of one project and region."""

    api: GoogleApi
    project: str
    region: str

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.region}"

    def report_to(self, on_repeat: Callable[[RepeatedCall], None]) -> "CloudRun":
        """Returns the same, which tells of calls that are made again."""
        return replace(self, api=self.api.report_to(on_repeat))

    async def get_service(self, name: str) -> Body | None:
        """Returns a service, None when there is none. Raises GoogleError."""
        return await self._find(f"services/{quote(name)}", f"read service {name!r}")

    async def create_service(self, name: str, body: Body) -> Body:
        """Creates a service; returns the operation. Raises ChangedResourceError if it is there."""
        return await self._create("services", "serviceId", name, body, f"create service {name!r}")

    async def replace_service(self, name: str, body: Body, etag: str) -> Body:
        """Replaces a whole service, if it is still the one of the etag; returns the operation."""
        return await self._patch(f"services/{quote(name)}", body, etag, f"update service {name!r}")

    async def set_traffic(self, name: str, traffic: list[Body], etag: str) -> Body:
        """Changes nothing but the traffic of a service; returns the operation."""
        return await self._patch(
            f"services/{quote(name)}",
            {"traffic": traffic},
            etag,
            f"change the traffic of service {name!r}",
            mask="traffic",
        )

    async def get_revision(self, service: str, revision: str) -> Body | None:
        """Returns a revision of a service, None when there is none."""
        path = f"services/{quote(service)}/revisions/{quote(revision)}"
        return await self._find(path, f"read revision {revision!r}")

    async def get_job(self, name: str) -> Body | None:
        """Returns a job, None when there is none."""
        return await self._find(f"jobs/{quote(name)}", f"read job {name!r}")

    async def create_job(self, name: str, body: Body) -> Body:
        """Creates a job; returns the operation."""
        return await self._create("jobs", "jobId", name, body, f"create job {name!r}")

    async def replace_job(self, name: str, body: Body, etag: str) -> Body:
        """Replaces a whole job, if it is still the one of the etag; returns the operation."""
        return await self._patch(f"jobs/{quote(name)}", body, etag, f"update job {name!r}")

    async def get_operation(self, name: str) -> Body | None:
        """Returns an operation, None when it is not known any more."""
        if not OPERATION.fullmatch(name):
            raise GoogleError(f"the API gave an operation a name that is none: {name[:100]!r}")
        try:
            return await self.api.get(f"/v2/{name}", "read the operation")
        except MissingResourceError:
            return None

    async def iter_services(self) -> AsyncIterator[Body]:
        """Yields all services of the region."""
        query = {"pageSize": PAGE_SIZE}
        for _ in range(MOST_PAGES):
            page = await self.api.get(
                f"/v2/{self.parent}/services", "list the services", query=query
            )
            for each in page.get("services") or ():
                if isinstance(each, dict):
                    yield each
            token = page.get("nextPageToken")
            if not isinstance(token, str) or not token:
                return
            query = {"pageSize": PAGE_SIZE, "pageToken": token}

    async def _find(self, path: str, what: str) -> Body | None:
        try:
            return await self.api.get(f"/v2/{self.parent}/{path}", what)
        except MissingResourceError:
            return None

    async def _create(self, path: str, key: str, name: str, body: Body, what: str) -> Body:
        return await self.api.call(
            "POST", f"/v2/{self.parent}/{path}", what, query={key: name}, body=body
        )

    async def _patch(self, path: str, body: Body, etag: str, what: str, *, mask: str = "") -> Body:
        full = {**body, "name": f"{self.parent}/{path}", "etag": etag}
        query = {"updateMask": mask} if mask else None
        return await self.api.call(
            "PATCH", f"/v2/{self.parent}/{path}", what, query=query, body=full
        )
