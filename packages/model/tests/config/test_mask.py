# SPDX-License-Identifier: Apache-2.0
"""What of a piped's configuration may be shown."""

from typing import Any

import pytest
import yaml

from pipecd_model.config import load_piped, to_masked_yaml

SECRETS = (
    "a2V5LW9mLXBpcGVk",
    "c3NoLWtleQ==",
    "hook-secret",
    "cHJpdmF0ZQ==",
    "chart-password",
    "target-token",
    "nested-credential",
    "sig-value",
    "userinfo-pw",
    "assigned-pw",
    "MIIEpQ",
)
TEXT = """\
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: ours
  pipedID: p1
  pipedKeyData: a2V5LW9mLXBpcGVk
  apiAddress: pipecd.example.com:443
  syncInterval: 90s
  git: {sshKeyData: c3NoLWtleQ==}
  repositories:
    - {repoId: infra, remote: "https://bot:userinfo-pw@git.example.com/infra", branch: main}
  plugins:
    - name: kubernetes
      port: 7001
      url: file:///opt/kubernetes
      config:
        chartRepositories:
          - name: stable
            address: https://charts.example.com
            username: u
            password: chart-password
        tls: |
          -----BEGIN RSA PRIVATE KEY-----
          MIIEpQ
      deployTargets:
        - name: dev
          labels: {env: dev}
          config:
            kubectlVersion: 1.32.2
            apiToken: target-token
            credentials: {aws: {id: nested-credential}, list: [nested-credential]}
            vars: ["password=assigned-pw", "region=eu"]
            enabled: true
  notifications:
    receivers:
      - {name: a, slack: {hookURL: https://hooks.example.com/hook-secret}}
      - {name: b, webhook: {url: https://hooks.example.com/hook-secret, signatureValue: sig-value}}
  secretManagement:
    type: KEY_PAIR
    config: {privateKeyData: cHJpdmF0ZQ==, publicKeyData: cHVibGlj}
"""


@pytest.fixture
def shown() -> str:
    return to_masked_yaml(load_piped(TEXT, file="piped.yaml").config)


def test_no_secret_is_shown(shown: str) -> None:
    assert [secret for secret in SECRETS if secret in shown] == []


def test_what_is_no_secret_is_shown(shown: str) -> None:
    spec: dict[str, Any] = yaml.safe_load(shown)["spec"]

    assert spec["projectID"] == "ours"
    assert spec["syncInterval"] == "1m30s"
    assert spec["appConfigSyncInterval"] == "1m0s"
    assert spec["repositories"] == [
        {"repoId": "infra", "remote": "https://******@git.example.com/infra", "branch": "main"}
    ]
    (plugin,) = spec["plugins"]
    assert plugin["url"] == "file:///opt/kubernetes"
    assert plugin["config"]["chartRepositories"] == [
        {
            "name": "stable",
            "address": "https://charts.example.com",
            "username": "u",
            "password": "******",
        }
    ]
    (target,) = plugin["deployTargets"]
    assert target["labels"] == {"env": "dev"}
    assert target["config"] == {
        "kubectlVersion": "1.32.2",
        "apiToken": "******",
        "credentials": {"aws": {"id": "******"}, "list": ["******"]},
        "vars": ["password=******", "region=eu"],
        "enabled": True,
    }
    assert spec["secretManagement"]["config"]["publicKeyData"] == "cHVibGlj"
    assert spec["pipedKeyData"] == "******"


def test_the_path_of_a_key_is_masked_as_well() -> None:
    text = TEXT.replace("pipedKeyData: a2V5LW9mLXBpcGVk", "pipedKeyFile: /etc/key-file")

    assert "/etc/key-file" not in to_masked_yaml(load_piped(text, file="piped.yaml").config)


def test_what_is_shown_is_a_document_of_its_kind(shown: str) -> None:
    document = yaml.safe_load(shown)

    assert (document["apiVersion"], document["kind"]) == ("pipecd.dev/v1beta1", "Piped")
