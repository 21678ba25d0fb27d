# SPDX-License-Identifier: Apache-2.0
"""`pipectl application resource` of a real cluster, through everything, with the least rights."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    configure,
    make_application,
    make_deployment,
    make_manifests,
)
from pipecd_test_support.piped_site import PipedSite

NEEDLE = "open-sesame-thyself"
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keys"},
    "stringData": {"password": NEEDLE},
}
LIMIT_SECONDS = 60


async def read_tree(piped: PipedSite, application_id: str) -> list[dict[str, Any]]:
    """Returns the resources once a pod is among them."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            text = await asyncio.to_thread(
                piped.pipectl, "application", "get", "--app-id", application_id, "--live"
            )
            state = json.loads(text).get("application_live_state", {})
            found: list[dict[str, Any]] = state.get("resources", [])
            if any(each["resource_type"] == "Pod" for each in found):
                return found
            await asyncio.sleep(0.1)  # between looks at another process


async def test_any_node_opens_with_the_rights_of_the_documentation(
    kubeconfig: Path, own_piped: PipedSite, namespace: Namespace
) -> None:
    await asyncio.to_thread(namespace.set_log, ["one", "two"])
    configure(own_piped, {"main": kubeconfig})
    own_piped.start()
    async with own_piped.client() as person:
        site = KubernetesSite(own_piped, person, "shop")
        application = make_application("shop", options={"input": {"namespace": namespace.name}})
        manifests = make_manifests(make_deployment(), SECRET)
        await site.succeed(site.commit(application, web__yaml=manifests))

        async def show(*arguments: str) -> str:
            command = ("application", "resource", site.application_id, *arguments)
            return await asyncio.to_thread(own_piped.pipectl, *command)

        with own_piped.explained():
            tree = await read_tree(own_piped, site.application_id)
            table = await show("-o", "table")
            opened = {each["id"]: json.loads(await show(each["id"])) for each in tree}
            pod = next(each for each in tree if each["resource_type"] == "Pod")
            lines = await show(pod["name"], "--logs", "web", "--tail", "1")
            keys = await show("Secret/keys", "-o", "table")

    assert {"Deployment", "ReplicaSet", "Pod", "Secret"} <= {each["resource_type"] for each in tree}
    assert all(each["name"] in table for each in tree)
    for each in tree:
        details = opened[each["id"]]
        assert f"name: {each['name']}\n" in details["manifest"]
        assert not [note for note in details["notes"] if "cannot be" in note], details["notes"]
    assert [each for each in lines.splitlines() if each] == ["two"]
    encoded = base64.b64encode(NEEDLE.encode()).decode()
    for text in (table, keys, json.dumps(opened)):
        assert NEEDLE not in text
        assert encoded not in text
    assert "password: '***'" in keys
