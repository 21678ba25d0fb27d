# SPDX-License-Identifier: Apache-2.0
"""The IAM policy of the plugin for AWS Lambda allows just what the plugin calls."""

import json
import re
from pathlib import Path

import botocore.session

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "deploy" / "lambda" / "policy.json"
PLUGIN = ROOT / "plugins" / "lambda" / "src" / "pipecd_plugin_lambda"
BESIDES = {"iam:PassRole", "lambda:ListTags"}
"""Needed by calls: to give a function its role, and for the tags in the answer of GetFunction."""


def test_the_policy_allows_just_what_the_plugin_calls() -> None:
    operations = set(botocore.session.Session().get_service_model("lambda").operation_names)
    words = {
        word
        for file in PLUGIN.rglob("*.py")
        for word in re.findall(r'"([A-Z][A-Za-z]+)"', file.read_text())
    }

    allowed: set[str] = set()
    for statement in json.loads(POLICY.read_text())["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)

    assert allowed == BESIDES | {f"lambda:{word}" for word in words & operations}
