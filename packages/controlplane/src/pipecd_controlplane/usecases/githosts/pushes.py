# SPDX-License-Identifier: Apache-2.0
"""What was pushed, read from the body of a hook in the words of each git host.

A body is read only after its signature was found good. It says where to look, and nothing that is
in it is used for anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from pipecd_model.errors import ConfigError
from pipecd_model.gitnames import BadGitNameError, BranchName, CommitHash
from pipecd_wire.pipecd.api.repositories_pb2 import Hook

MOST_BRANCHES: Final = 100
"""Branches of one push that are looked at; the others wait for the next poll."""

_BRANCH: Final = "refs/heads/"
_FORM: Final = "application/x-www-form-urlencoded"
_EVENTS: Final = {
    Hook.GITHUB: ("x-github-event", frozenset({"push"}), frozenset({"ping"})),
    Hook.GITLAB: ("x-gitlab-event", frozenset({"Push Hook", "System Hook"}), frozenset[str]()),
    Hook.GITEA: ("x-gitea-event", frozenset({"push"}), frozenset[str]()),
    Hook.BITBUCKET: ("x-event-key", frozenset({"repo:push"}), frozenset[str]()),
    Hook.BITBUCKET_SERVER: (
        "x-event-key",
        frozenset({"repo:refs_changed", "mirror:repo_synchronized"}),
        frozenset({"diagnostics:ping"}),
    ),
}
"""The header that names the event, the events that are pushes, and those that only try the hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedRepository:
    """A repository of which something was pushed, in what its host says of it."""

    urls: tuple[str, ...] = ()
    """Its addresses."""
    path: str = ""
    """The end of its addresses, for a host that does not say them."""

    def __str__(self) -> str:
        return next(iter(self.urls), self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedBranch:
    """A branch that was moved."""

    name: str
    commit_hash: str = ""
    """Empty when the host did not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    """What a hook says. Without a repository or branches there is nothing to look at."""

    repository: PushedRepository = PushedRepository()
    branches: tuple[PushedBranch, ...] = ()
    note: str = ""
    """A sentence on why there is nothing to look at."""
    is_ping: bool = False


# What hosts send. What is not named here is passed over.


class _Repository(msgspec.Struct, kw_only=True):
    """A repository in what GitHub and Gitea send."""

    clone_url: str | None = None
    ssh_url: str | None = None
    git_url: str | None = None
    html_url: str | None = None


class _RefPush(msgspec.Struct, kw_only=True):
    """The push of a branch or tag, as GitHub and Gitea send it."""

    ref: str = ""
    after: str | None = None
    deleted: bool | None = None
    repository: _Repository


class _GitlabProject(msgspec.Struct, kw_only=True):
    git_http_url: str | None = None
    git_ssh_url: str | None = None
    web_url: str | None = None


class _GitlabPush(msgspec.Struct, kw_only=True):
    object_kind: str = ""
    event_name: str = ""
    ref: str = ""
    after: str | None = None
    project: _GitlabProject


class _Link(msgspec.Struct, kw_only=True):
    href: str = ""


class _BitbucketLinks(msgspec.Struct, kw_only=True):
    html: _Link | None = None


class _BitbucketRepository(msgspec.Struct, kw_only=True):
    full_name: str = ""
    links: _BitbucketLinks | None = None


class _BitbucketTarget(msgspec.Struct, kw_only=True):
    hash: str | None = None


class _BitbucketRef(msgspec.Struct, kw_only=True):
    type: str = ""
    name: str = ""
    target: _BitbucketTarget | None = None


class _BitbucketChange(msgspec.Struct, kw_only=True):
    new: _BitbucketRef | None = None


class _BitbucketChanges(msgspec.Struct, kw_only=True):
    changes: list[_BitbucketChange] = msgspec.field(default_factory=list)


class _BitbucketPush(msgspec.Struct, kw_only=True):
    push: _BitbucketChanges
    repository: _BitbucketRepository


class _ServerLinks(msgspec.Struct, kw_only=True, rename="camel"):
    clone: list[_Link] = msgspec.field(default_factory=list)


class _ServerProject(msgspec.Struct, kw_only=True, rename="camel"):
    key: str = ""


class _ServerRepository(msgspec.Struct, kw_only=True, rename="camel"):
    slug: str = ""
    project: _ServerProject
    links: _ServerLinks | None = None


class _ServerRef(msgspec.Struct, kw_only=True, rename="camel"):
    id: str = ""


class _ServerChange(msgspec.Struct, kw_only=True, rename="camel"):
    ref: _ServerRef
    to_hash: str | None = None
    type: str = ""


class _ServerPush(msgspec.Struct, kw_only=True, rename="camel"):
    repository: _ServerRepository
    changes: list[_ServerChange] = msgspec.field(default_factory=list)


class _GenericPush(msgspec.Struct, kw_only=True):
    repository: str
    branch: str = ""
    commit: str = ""


S = TypeVar("S", bound=msgspec.Struct)


def read_push(headers: Mapping[str, str], body: bytes, host: Hook.Host.ValueType) -> PushEvent:
    """Returns what a hook says. Raises ConfigError for a body that is not the host's."""
    if host == Hook.GENERIC:
        return _read_generic(_decode(body, _GenericPush))
    header, pushes, pings = _EVENTS[host]
    event = headers.get(header, "")
    if event in pings:
        return PushEvent(is_ping=True)
    if event not in pushes:
        return PushEvent(
            note=f"the event {event[:100]!r} is no push" if event else f"it has no header {header}"
        )
    text = _unwrap(headers, body)
    if host in (Hook.GITHUB, Hook.GITEA):
        return _read_ref_push(_decode(text, _RefPush))
    if host == Hook.GITLAB:
        return _read_gitlab(_decode(text, _GitlabPush))
    if host == Hook.BITBUCKET:
        return _read_bitbucket(_decode(text, _BitbucketPush))
    return _read_server(_decode(text, _ServerPush))


def _unwrap(headers: Mapping[str, str], body: bytes) -> bytes:
    """Returns the JSON of a body; GitHub and Gitea can send it as a field of a form."""
    if not headers.get("content-type", "").lower().startswith(_FORM):
        return body
    try:
        fields = parse_qs(body.decode(), max_num_fields=20)
    except ValueError:
        raise ConfigError("the body is no form", hint="set the content type to JSON") from None
    return next(iter(fields.get("payload", [])), "").encode()


def _decode(body: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"the body is not the JSON of a push: {str(error)[:200]}",
            hint="is the hook of the right kind, and its content type JSON?",
        ) from None


def _read_ref_push(push: _RefPush) -> PushEvent:
    of = push.repository
    repository = _repository(of.clone_url, of.ssh_url, of.git_url, of.html_url)
    return _read_ref(repository, push.ref, push.after, is_deleted=bool(push.deleted))


def _read_gitlab(push: _GitlabPush) -> PushEvent:
    kind = push.object_kind or push.event_name
    if kind != "push":
        return PushEvent(note=f"the event {kind[:100]!r} is no push of a branch")
    of = push.project
    return _read_ref(_repository(of.git_http_url, of.git_ssh_url, of.web_url), push.ref, push.after)


def _read_bitbucket(push: _BitbucketPush) -> PushEvent:
    of = push.repository
    link = of.links.html.href if of.links and of.links.html else ""
    url = f"https://bitbucket.org/{of.full_name}" if of.full_name else ""
    return _gather(
        _repository(link, url),
        (
            _make_branch(change.new.name, change.new.target.hash if change.new.target else None)
            for change in push.push.changes
            if change.new is not None and change.new.type == "branch"
        ),
    )


def _read_server(push: _ServerPush) -> PushEvent:
    of = push.repository
    urls = [link.href for link in of.links.clone] if of.links else []
    path = f"{of.project.key}/{of.slug}" if of.project.key and of.slug else ""
    return _gather(
        PushedRepository(urls=_repository(*urls).urls, path=path),
        (
            _make_branch(change.ref.id.removeprefix(_BRANCH), change.to_hash)
            for change in push.changes
            if change.type != "DELETE" and change.ref.id.startswith(_BRANCH)
        ),
    )


def _read_generic(push: _GenericPush) -> PushEvent:
    branch = push.branch.removeprefix(_BRANCH)
    return PushEvent(
        repository=_repository(push.repository),
        # Without a branch it is for every one that somebody watches.
        branches=(_make_branch(branch, push.commit) if branch else PushedBranch(name=""),),
    )


def _read_ref(
    repository: PushedRepository, ref: str, after: str | None, *, is_deleted: bool = False
) -> PushEvent:
    if not ref.startswith(_BRANCH):
        return PushEvent(repository=repository, note=f"{ref[:200]!r} is no branch")
    if is_deleted or (after and not after.strip("0")):
        return PushEvent(repository=repository, note=f"{ref[:200]!r} was deleted")
    return _gather(repository, [_make_branch(ref.removeprefix(_BRANCH), after)])


def _gather(repository: PushedRepository, branches: Iterable[PushedBranch]) -> PushEvent:
    found = tuple(branches)[:MOST_BRANCHES]
    return PushEvent(
        repository=repository,
        branches=found,
        note="" if found else "no branch was moved",
    )


def _repository(*urls: str | None) -> PushedRepository:
    return PushedRepository(urls=tuple(url for url in urls if url))


def _make_branch(name: str, commit_hash: str | None) -> PushedBranch:
    """Returns a branch by its checked name. Raises ConfigError."""
    try:
        return PushedBranch(name=BranchName(name), commit_hash=_read_hash(commit_hash or ""))
    except BadGitNameError as error:
        raise ConfigError(str(error), hint=error.hint) from None


def _read_hash(text: str) -> str:
    """Returns the whole hash of a commit; empty for anything else, which is as good as none."""
    try:
        return CommitHash(text)
    except BadGitNameError:
        return ""
