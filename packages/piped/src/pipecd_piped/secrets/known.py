# SPDX-License-Identifier: Apache-2.0
"""The decrypted secrets by application, and the masking of texts with them.

Reading an application at a commit decrypts its secrets. They are kept here from then on, until a
while after its last deployment. Every text that leaves piped on behalf of a deployment is masked
with `masker`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pipecd_model.errors import ConfigError, StateError
from pipecd_model.secrets import Masker
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.model.deployment_pb2 import Deployment

log = logger(__name__)

KEPT: Final = 16
"""The number of applications without a running deployment whose secrets are kept.

The last reports of a deployment may still have to be masked after it has ended.
"""

COMMITS: Final = 8
"""The number of commits of an application whose secrets are kept."""

ENDED: Final = 32
"""The number of an application's deployments that are kept after their end."""

_Place = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSecrets:
    """The secrets of an application at a commit."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    problems: Mapping[str, ConfigError] = field(default_factory=dict)
    """The secrets that cannot be decrypted, with the reason."""


@dataclass(slots=True, kw_only=True)
class _Deployment:
    commit: str
    users: int = 0


@dataclass(slots=True, kw_only=True)
class _Application:
    users: int = 0
    commits: dict[str, OpenedSecrets] = field(default_factory=dict)
    masker: Masker = field(default_factory=lambda: Masker(()))
    deployments: dict[str, _Deployment] = field(default_factory=dict)
    """Its deployments by id, in the order of use."""


class KnownSecrets:
    """All decrypted secrets of this process."""

    def __init__(self) -> None:
        self._applications: dict[_Place, _Application] = {}
        self._owners: dict[str, _Application] = {}
        """The application of each deployment, as long as both are kept."""
        self._all = Masker(())

    def learn(self, git_path: ApplicationGitPath, commit: str, opened: OpenedSecrets) -> None:
        """Remember the secrets of an application at a commit."""
        place = _place(git_path)
        application = self._applications.get(place)
        if application is None:
            if not opened.values and not opened.problems:
                return
            application = self._applications.setdefault(place, _Application())
        before = application.commits.pop(commit, None)
        application.commits[commit] = opened
        if len(application.commits) > COMMITS:
            del application.commits[next(iter(application.commits))]
        if before is None or before.values != opened.values:
            application.masker = Masker(_values(application))
            if not application.masker.is_complete:
                log.warning("secrets.partly_masked", repository=place[0], path=place[1])
            self._all = Masker.join([each.masker for each in self._applications.values()])

    @contextmanager
    def opened(self, deployment: Deployment) -> Iterator[None]:
        """Keep the secrets of a deployment's application while the block runs."""
        place = _place(deployment.git_path)
        application = self._applications.pop(place, None) or _Application()
        self._applications[place] = application  # moved to the end: the order is that of use
        commit = deployment.trigger.commit.hash
        opened = application.deployments.pop(deployment.id, None) or _Deployment(commit=commit)
        application.deployments[deployment.id] = opened
        self._owners[deployment.id] = application
        opened.users += 1
        application.users += 1
        try:
            yield
        finally:
            opened.users -= 1
            application.users -= 1
            self._forget_ended(application)
            self._forget_unused()

    def find_secrets(self, deployment_id: str) -> OpenedSecrets:
        """Returns the secrets of the deployment's target commit."""
        application = self._owners.get(deployment_id)
        if application is None:
            return OpenedSecrets()
        commit = application.deployments[deployment_id].commit
        return application.commits.get(commit) or OpenedSecrets()

    def value(self, deployment_id: str, name: str) -> str:
        """Returns the value of a secret. Raises PipecdError, whose message contains no value."""
        opened = self.find_secrets(deployment_id)
        if name in opened.values:
            return opened.values[name]
        if name in opened.problems:
            problem = opened.problems[name]
            raise StateError(
                f"the secret {name!r} cannot be opened: {problem}", hint=problem.hint
            ) from None
        raise ConfigError(
            f"there is no secret {name!r}", hint="add it to spec.encryption.encryptedSecrets"
        )

    def masker(self, deployment_id: str) -> Masker:
        """Returns the masker of a deployment's texts; another object once there is more to mask."""
        application = self._owners.get(deployment_id)
        return application.masker if application is not None else _NOTHING

    def mask_for(self, deployment_id: str, text: str) -> str:
        """Returns a text of a deployment with the secrets of its application masked."""
        return self.masker(deployment_id).line(text)

    def mask(self, text: str) -> str:
        """Returns a text of unknown origin with all known secrets masked."""
        return self._all.line(text)

    def _forget_ended(self, application: _Application) -> None:
        """Drop the least recently used of an application's deployments that have ended."""
        ended = [each for each, found in application.deployments.items() if not found.users]
        for deployment_id in ended[: max(0, len(ended) - ENDED)]:
            del application.deployments[deployment_id]
            self._owners.pop(deployment_id, None)

    def _forget_unused(self) -> None:
        """Drop the secrets of the least recently used applications without a running deployment."""
        unused = [place for place, each in self._applications.items() if not each.users]
        for place in unused[: max(0, len(unused) - KEPT)]:
            for deployment_id in self._applications.pop(place).deployments:
                self._owners.pop(deployment_id, None)


_NOTHING: Final = Masker(())


def _values(application: _Application) -> Iterator[str]:
    for opened in application.commits.values():
        yield from opened.values.values()


def _place(git_path: ApplicationGitPath) -> _Place:
    return git_path.repo.id, git_path.path
