# SPDX-License-Identifier: Apache-2.0
"""The fake keeps the contract: each request of the file gets the answer that the file says."""

import json
from pathlib import Path
from typing import Any

import httpx2

import pipecd_test_support.google_cloud
from pipecd_sdk.kit import yaml
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun

CONTRACT = Path(pipecd_test_support.google_cloud.__path__[0]) / "cloud_run_contract.yaml"
PARENT = "projects/shop/locations/asia-northeast1"


def fill(value: Any, kept: dict[str, str]) -> Any:
    """The same with the values that earlier answers had."""
    if isinstance(value, dict):
        return {key: fill(inner, kept) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(each, kept) for each in value]
    return kept[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def find_difference(part: Any, whole: Any, path: str = "") -> str:
    """Where an answer lacks what it must have, an empty text when it has all of it."""
    if isinstance(part, dict) and isinstance(whole, dict):
        places = (find_difference(part[key], whole.get(key), f"{path}.{key}") for key in part)
    elif isinstance(part, list) and isinstance(whole, list):
        places = (
            find_difference(each, whole[index] if index < len(whole) else None, f"{path}[{index}]")
            for index, each in enumerate(part)
        )
    else:
        return "" if part == whole else f"{path}: {part!r} is {whole!r}"
    return next((place for place in places if place), "")


def test_the_fake_keeps_the_contract(cloud: FakeCloudRun) -> None:
    cloud.tokens.add("token")
    kept: dict[str, str] = {}
    steps = yaml.load(CONTRACT.read_text())
    assert len(steps) == 20

    with httpx2.Client(headers={"Authorization": "Bearer token"}) as client:
        for step in steps:
            method, _, path = step["request"].partition(" ")
            where = fill(path, kept) if path.startswith("$") else f"{PARENT}/{path}"
            body = json.dumps(fill(step["body"], kept)) if "body" in step else None
            answer = client.request(method, f"{cloud.url}/v2/{where}", content=body)

            assert answer.status_code == step["status"], f"{step['what']}: {answer.text}"
            found = answer.json()
            assert find_difference(step.get("has", {}), found) == "", step["what"]
            kept |= {name: found[key] for name, key in step.get("keep", {}).items()}


def test_a_call_without_a_token_is_refused(cloud: FakeCloudRun) -> None:
    assert httpx2.get(f"{cloud.url}/v2/{PARENT}/services/web").status_code == 401
