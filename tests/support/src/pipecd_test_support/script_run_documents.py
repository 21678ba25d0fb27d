# SPDX-License-Identifier: Apache-2.0
"""The applications of the script-run documents, word for word.

Times are shorter, and quotes that no YAML can have are mended.
"""

from typing import Final

CANARY: Final = """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: canary-with-script-run
  labels:
    env: example
    team: product
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 10%
      - name: WAIT
        with:
          duration: 10ms
      - name: SCRIPT_RUN
        with:
          env:
            MSG: "execute script1"
          run: |
            echo $MSG
            sleep 0.1
      - name: K8S_PRIMARY_ROLLOUT
      - name: K8S_CANARY_CLEAN
      - name: SCRIPT_RUN
        with:
          env:
            MSG: "execute script2"
          run: |
            echo $MSG
            sleep 0.1
"""
"""The guide's first example."""

ROLLBACK: Final = """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: canary-with-script-run
  labels:
    env: example
    team: product
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 10%
      - name: WAIT
        with:
          duration: 10ms
      - name: SCRIPT_RUN
        with:
          env:
            MSG: "execute script1"
            R_MSG: "rollback script1"
          run: |
            echo $MSG
            sleep 0.1
          onRollback: |
            echo $R_MSG
            sleep 0.1
      - name: K8S_PRIMARY_ROLLOUT
      - name: K8S_CANARY_CLEAN
"""
"""The guide's example with a rollback."""

SAM: Final = """\
apiVersion: pipecd.dev/v1beta1
kind: LambdaApp
spec:
  encryptedSecrets:
    password: encrypted-secrets
  pipeline:
    stages:
      - name: SCRIPT_RUN
        env:
          AWS_PROFILE: default
        runs:
          - "echo {{ .encryptedSecrets.password }} | sudo -S su"
          - "sam build"
          - "sam deploy -g --profile $AWS_PROFILE"
"""
"""The RFC's example of Lambda."""

SLACK: Final = r"""
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 10%
      - name: WAIT_APPROVAL
        with:
          timeout: 30m
      - name: K8S_PRIMARY_ROLLOUT
      - name: K8S_CANARY_CLEAN
      - name: SCRIPT_RUN
        env:
          SLACK_WEBHOOK_URL: ""
        runs:
          - "CURL '{\"text\":\"successfully deployed!!\"}' $SLACK_WEBHOOK_URL"
        runsOnRollback:
          - "CURL '{\"text\":\"failed to deploy: rollback\"}' $SLACK_WEBHOOK_URL"
""".replace("CURL", "curl -X POST -H 'Content-type: application/json' --data")
"""The RFC's example of Kubernetes, whose scripts tell a chat."""


def add_options(document: str, *lines: str) -> str:
    """Returns an application file with more lines at the beginning of its `spec`."""
    head, found, rest = document.partition("spec:\n")
    assert found, "it has no spec"
    return head + found + "".join(f"  {line}\n" for line in lines) + rest
