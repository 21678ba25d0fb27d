# SPDX-License-Identifier: Apache-2.0
"""Documents come from repositories: whatever is in them, it is a fault and nothing worse."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.config import ConfigFaultsError, Fault, load_application, load_piped

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n"
APPLICATION_KEYS = [
    "name",
    "labels",
    "trigger",
    "onCommit",
    "paths",
    "ignores",
    "planner",
    "autoRollback",
    "commitMatcher",
    "pipeline",
    "stages",
    "desc",
    "with",
    "run",
    "env",
    "timeout",
    "skipOn",
    "plugins",
    "encryption",
    "encryptedSecrets",
    "decryptionTargets",
    "triggerPaths",
    "eventWatcher",
    "matcher",
    "handler",
    "type",
    "config",
    "replacements",
    "file",
    "notification",
    "mentions",
    "event",
    "postSync",
    "chain",
    "applications",
    "driftDetection",
    "deployTargets",
    "ignoreFields",
    "input",
]
PIPED_KEYS = [
    "projectID",
    "pipedID",
    "pipedKeyData",
    "pipedKeyFile",
    "apiAddress",
    "syncInterval",
    "git",
    "username",
    "password",
    "sshKeyData",
    "repositories",
    "repoId",
    "remote",
    "branch",
    "plugin",
    "plugins",
    "name",
    "url",
    "sourceURL",
    "port",
    "sha256",
    "config",
    "deployTargets",
    "labels",
    "notifications",
    "routes",
    "receivers",
    "receiver",
    "slack",
    "webhook",
    "events",
    "secretManagement",
    "type",
    "privateKeyData",
    "eventWatcher",
    "gitRepos",
    "planPreview",
    "workerNum",
    "appSelector",
    "autoRegistration",
    "labels",
    "paths",
    "limit",
]


def documents(keys: list[str]) -> st.SearchStrategy[Any]:
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(alphabet=st.characters(codec="utf-8"), max_size=10)
        | st.sampled_from(["SCRIPT_RUN", "GIT_UPDATE", "KEY_PAIR", "5m", "[", "a"])
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=5)
        ),
        max_leaves=20,
    )


def faults_of(loader: Any, text: str) -> tuple[Fault, ...]:
    try:
        loader(text, file="f")
    except ConfigFaultsError as refused:
        return refused.faults
    return ()


@given(st.text(alphabet=st.sampled_from("abns: -\n[]{}\"'&*|>#!%@`\t0123"), max_size=80))
def test_any_text_loads_or_is_refused_with_a_place(body: str) -> None:
    for fault in faults_of(load_application, HEAD + body):
        assert fault.line > 0
        assert fault.message


@given(st.sampled_from(["Application", "KubernetesApp"]), documents(APPLICATION_KEYS))
def test_any_shape_of_an_application_loads_or_is_refused(kind: str, spec: object) -> None:
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": kind, "spec": spec}

    for fault in faults_of(load_application, json.dumps(document, ensure_ascii=False)):
        assert fault.line > 0


@given(documents(PIPED_KEYS))
def test_any_shape_of_a_piped_loads_or_is_refused(spec: object) -> None:
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Piped", "spec": spec}

    for fault in faults_of(load_piped, json.dumps(document, ensure_ascii=False)):
        assert fault.line > 0
