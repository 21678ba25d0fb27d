# SPDX-License-Identifier: Apache-2.0
"""What git hosts send to a hook: bodies, headers and signatures as each of them documents them."""

import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from typing import Any

from pipecd_wire.pipecd.api.repositories_pb2 import Hook

COMMIT = "5f2c6d0b1c2e4f708192a3b4c5d6e7f801234567"
BEFORE = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
ZEROS = "0" * 40
JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class SentHook:
    """A request to a hook."""

    headers: dict[str, str]
    body: bytes


def sign(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def describe_push(
    host: Hook.Host.ValueType,
    *,
    repository: str = "org/name",
    branch: str = "main",
    commit: str = COMMIT,
    domain: str = "github.com",
) -> dict[str, Any]:
    """Returns the body that a host sends when a branch was pushed."""
    owner, name = repository.split("/")
    ref = f"refs/heads/{branch}"
    if host == Hook.GITHUB:
        return {
            "ref": ref,
            "before": BEFORE,
            "after": commit,
            "created": False,
            "deleted": False,
            "forced": False,
            "base_ref": None,
            "compare": f"https://{domain}/{repository}/compare/{BEFORE[:12]}...{commit[:12]}",
            "commits": [{"id": commit, "message": "Change", "added": [], "modified": ["a"]}],
            "head_commit": {"id": commit, "message": "Change"},
            "repository": {
                "id": 1,
                "name": name,
                "full_name": repository,
                "private": True,
                "html_url": f"https://{domain}/{repository}",
                "git_url": f"git://{domain}/{repository}.git",
                "ssh_url": f"git@{domain}:{repository}.git",
                "clone_url": f"https://{domain}/{repository}.git",
                "default_branch": "main",
            },
            "pusher": {"name": "ada", "email": "ada@example.com"},
            "sender": {"login": "ada", "id": 2},
        }
    if host == Hook.GITEA:
        return {
            "ref": ref,
            "before": BEFORE,
            "after": commit,
            "compare_url": "",
            "commits": [{"id": commit, "message": "Change", "added": None}],
            "total_commits": 1,
            "repository": {
                "id": 1,
                "owner": {"login": owner},
                "name": name,
                "full_name": repository,
                "html_url": f"https://{domain}/{repository}",
                "ssh_url": f"ssh://git@{domain}:2222/{repository}.git",
                "clone_url": f"https://{domain}/{repository}.git",
                "default_branch": "main",
            },
            "pusher": {"login": "ada"},
            "sender": {"login": "ada"},
        }
    if host == Hook.GITLAB:
        return {
            "object_kind": "push",
            "event_name": "push",
            "before": BEFORE,
            "after": commit,
            "ref": ref,
            "ref_protected": True,
            "checkout_sha": commit,
            "user_username": "ada",
            "project_id": 15,
            "project": {
                "id": 15,
                "name": name,
                "description": None,
                "web_url": f"https://{domain}/{repository}",
                "git_ssh_url": f"git@{domain}:{repository}.git",
                "git_http_url": f"https://{domain}/{repository}.git",
                "path_with_namespace": repository,
                "default_branch": "main",
            },
            "commits": [{"id": commit, "message": "Change"}],
            "total_commits_count": 1,
        }
    if host == Hook.BITBUCKET:
        return {
            "actor": {"display_name": "Ada"},
            "repository": {
                "type": "repository",
                "full_name": repository,
                "links": {"html": {"href": f"https://{domain}/{repository}"}},
                "scm": "git",
                "is_private": True,
            },
            "push": {
                "changes": [
                    {
                        "old": {"type": "branch", "name": branch, "target": {"hash": BEFORE}},
                        "new": {
                            "type": "branch",
                            "name": branch,
                            "target": {"type": "commit", "hash": commit},
                        },
                        "created": False,
                        "closed": False,
                        "forced": False,
                        "truncated": False,
                    },
                    {"old": {"type": "branch", "name": "gone"}, "new": None, "closed": True},
                    {"old": None, "new": {"type": "tag", "name": "v1"}, "created": True},
                ]
            },
        }
    if host == Hook.BITBUCKET_SERVER:
        return {
            "eventKey": "repo:refs_changed",
            "date": "2026-01-02T03:04:05+0000",
            "actor": {"name": "ada", "active": True},
            "repository": {
                "slug": name,
                "id": 84,
                "name": name,
                "scmId": "git",
                "state": "AVAILABLE",
                "project": {"key": owner.upper(), "id": 84, "type": "NORMAL"},
                "public": False,
            },
            "changes": [
                {
                    "ref": {"id": ref, "displayId": branch, "type": "BRANCH"},
                    "refId": ref,
                    "fromHash": BEFORE,
                    "toHash": commit,
                    "type": "UPDATE",
                },
                {
                    "ref": {"id": "refs/heads/gone", "displayId": "gone", "type": "BRANCH"},
                    "fromHash": BEFORE,
                    "toHash": ZEROS,
                    "type": "DELETE",
                },
            ],
        }
    return {
        "repository": f"https://{domain}/{repository}.git",
        "branch": branch,
        "commit": commit,
    }


EVENTS = {
    Hook.GITHUB: {"X-GitHub-Event": "push", "X-GitHub-Delivery": "72d3162e"},
    Hook.GITLAB: {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Instance": "https://gitlab.example.com"},
    Hook.GITEA: {"X-Gitea-Event": "push", "X-Gitea-Delivery": "f6266f16"},
    Hook.BITBUCKET: {"X-Event-Key": "repo:push", "X-Attempt-Number": "1"},
    Hook.BITBUCKET_SERVER: {"X-Event-Key": "repo:refs_changed", "X-Request-Id": "1"},
    Hook.GENERIC: dict[str, str](),
}


def send_as(
    host: Hook.Host.ValueType,
    secret: str,
    body: bytes,
    *,
    at: int | None = None,
    events: dict[str, str] | None = None,
) -> SentHook:
    """Returns the request with which a host sends a body."""
    headers = {"Content-Type": JSON, **(EVENTS[host] if events is None else events)}
    if host == Hook.GITLAB:
        headers["X-Gitlab-Token"] = secret
    elif host == Hook.GITHUB:
        headers["X-Hub-Signature-256"] = f"sha256={sign(secret, body)}"
    elif host == Hook.GITEA:
        headers["X-Gitea-Signature"] = sign(secret, body)
    elif host == Hook.GENERIC:
        seconds = int(time.time()) if at is None else at
        headers["X-Pipecd-Timestamp"] = str(seconds)
        headers["X-Pipecd-Signature"] = f"sha256={sign(secret, f'{seconds}.'.encode() + body)}"
    else:
        headers["X-Hub-Signature"] = f"sha256={sign(secret, body)}"
    return SentHook(headers=headers, body=body)


def push_as(host: Hook.Host.ValueType, secret: str, **fields: Any) -> SentHook:
    """Returns the request with which a host tells of a push."""
    return send_as(host, secret, json.dumps(describe_push(host, **fields)).encode())
