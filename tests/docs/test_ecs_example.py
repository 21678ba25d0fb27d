# SPDX-License-Identifier: Apache-2.0
"""The example and the IAM policy of the plugin for ECS say what is true."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EXAMPLE = ROOT / "examples" / "07-ecs"
POLICY = ROOT / "deploy" / "aws" / "ecs-policy.json"
VERBS = (
    "Create",
    "Delete",
    "Describe",
    "List",
    "Modify",
    "Register",
    "Run",
    "Tag",
    "Untag",
    "Update",
)
PROVIDER = ROOT / "plugins" / "ecs" / "src" / "pipecd_plugin_ecs" / "provider"


def test_the_files_of_the_ecs_example_have_no_faults(tmp_path: Path) -> None:
    key = tmp_path / "piped.key"
    key.write_text("secret")
    piped = tmp_path / "piped.yaml"
    text = (EXAMPLE / "piped.yaml").read_text()
    piped.write_text(text.replace("/tmp/pipecd-ecs/piped.key", str(key)))  # noqa: S108 - the README's

    done = subprocess.run(
        [BIN / "pipectl", "lint", piped, EXAMPLE / "repository", "--piped", piped],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout + done.stderr


def test_the_policy_allows_just_what_the_plugin_calls() -> None:
    called = {"iam:PassRole"}
    for file, service in (("ecs.py", "ecs"), ("elb.py", "elasticloadbalancing")):
        names = re.findall(r'"((?:[A-Z][a-z]+)+[A-Za-z]*)"', (PROVIDER / file).read_text())
        called |= {
            f"{service}:{name}"
            for name in names
            if name.startswith(VERBS) and name not in {"ListenerArn", "Listeners"}
        }

    allowed: set[str] = set()
    for statement in json.loads(POLICY.read_text())["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)

    assert allowed == called
