# SPDX-License-Identifier: Apache-2.0
"""The words of the protocol beside the messages: headers, credentials, variables, metadata keys.

Two programs must spell each of them alike, and no message definition holds them. What runs on the
standard library alone (the script shim, the start of a plugin file) has copies that tests compare.
"""

from typing import Final

AUTHORIZATION: Final = "authorization"
"""Header of a credential: a scheme, a blank, the credential."""
API_KEY_SCHEME: Final = "API-KEY"
PIPED_TOKEN_SCHEME: Final = "PIPED-TOKEN"  # noqa: S105 - the name of a kind of credential
BEARER_SCHEME: Final = "Bearer"
COOKIE: Final = "cookie"
"""Header of a person's session, from browsers and from pipectl alike."""
SESSION_COOKIE: Final = "token"
"""The name of the cookie with a session, upstream's."""

IDEMPOTENCY_KEY_HEADER: Final = "pipecd-idempotency-key"
"""Header of a call that a program repeats: the control plane carries out one of them."""
LEASE_EPOCH_HEADER: Final = "pipecd-lease-epoch"
"""Header of every call of a piped: the epoch of the lease under which it reports."""

PLUGIN_TOKEN_HEADER: Final = "pipecd-plugin-token"  # noqa: S105 - the name of it, as below
"""Header of a plugin's calls: the proof that piped started it."""
PLUGIN_TOKEN_VARIABLE: Final = "PIPECD_PLUGIN_TOKEN"  # noqa: S105
"""Environment variable in which piped gives a plugin that proof."""
PIPED_TOKEN_HEADER: Final = "pipecd-piped-token"  # noqa: S105
"""Header of piped's calls to a plugin: the proof that it is the piped that started it."""
PIPED_TOKEN_VARIABLE: Final = "PIPECD_PIPED_TOKEN"  # noqa: S105
"""Environment variable in which piped gives a plugin that proof."""

CURRENT_METADATA_HEADER: Final = "pipecd-current-metadata"
"""Header of ExecuteStage: the deployment in the request has all metadata of the plugin, as it
is at the time of the call. A Go agent's has what was known when the deployment began."""

REFUSAL_TRAILER: Final = "pipecd-refusal-bin"
"""Trailing metadata of a plugin's refusal: a `pipecd.plugin.v1.Refusal`."""

ANSWER_TRAILER: Final = "pipecd-answer-bin"
"""Trailing metadata of UNAVAILABLE that a program of ours has answered: gRPC ends calls to a server
that it cannot reach with the same status."""

PARENT_VARIABLE: Final = "PIPECD_PARENT_PID"
"""Environment variable: the pid of the piped that starts a plugin."""
SCRIPTS_VARIABLE: Final = "PIPECD_SCRIPTS_DIR"
"""Environment variable: the folder where a plugin records the scripts that it runs."""
SCRIPT_ID_VARIABLE: Final = "PIPECD_SCRIPT_ID"
"""Environment variable that marks every process of one script."""
PLUGIN_CACHE_VARIABLE: Final = "PIPECD_PLUGIN_CACHE"
"""Environment variable: the folder where a plugin file unpacks itself."""
CHAOS_PREFIX: Final = "PIPECD_CHAOS_"
"""Environment variables that begin like this make a program die at a chosen place, in tests."""

TRIGGERED_DEPLOYMENT_ID: Final = "TriggeredDeploymentID"
"""Metadata key of a handled sync command: the id of the deployment that it triggered."""


def format_api_key(key: str) -> str:
    """Returns the authorization header of a program with an API key.

    Example:
        >>> format_api_key("key-1.secret")
        'API-KEY key-1.secret'
    """
    return f"{API_KEY_SCHEME} {key}"


def format_session(token: str) -> str:
    """Returns the cookie header of a person with a session.

    Example:
        >>> format_session("session-1.secret")
        'token=session-1.secret'
    """
    return f"{SESSION_COOKIE}={token}"


def format_piped_token(project_id: str, piped_id: str, key: str) -> str:
    """Returns the authorization header of a piped.

    Example:
        >>> format_piped_token("default", "piped-1", "secret")
        'PIPED-TOKEN default,piped-1,secret'
    """
    return f"{PIPED_TOKEN_SCHEME} {project_id},{piped_id},{key}"
