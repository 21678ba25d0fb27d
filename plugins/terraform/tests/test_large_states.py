# SPDX-License-Identifier: Apache-2.0
"""A state that is too large to be read whole: what is in it is listed, and drift is still told."""

import json

from pipecd_plugin_terraform.livestate import MOST_RESOURCES, TOO_LARGE, list_view

from pipecd_sdk import Health, SyncStatus
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.terraform_lab import TerraformLab, data

SIZE = 6_000_000
"""Of a value that a state holds three times: more than 16 MiB."""
INNER = 'resource "terraform_data" "deep" {\n  for_each = toset(["a.b", "c"])\n}\n'


async def test_a_state_of_more_than_16_mib_is_listed_and_compared(lab: TerraformLab) -> None:
    text = data(value='file("large.txt")') + data("two")
    folder = lab.write(
        "app", text + 'module "inner" {\n  source = "./inner"\n}\n', large__txt="x" * SIZE
    )
    (folder / "inner").mkdir()
    (folder / "inner" / "main.tf").write_text(INNER)
    harness = lab.harness(folder, clock=FakeClock())
    assert (await harness.run("TERRAFORM_SYNC")).reason == ""

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.SYNCED
    found = {each.id: each for _, each in seen.resources}
    assert {each.id: (each.kind, *each.parents) for each in found.values()} == {
        "state": ("State",),
        "terraform_data.one": ("terraform_data", "state"),
        "terraform_data.two": ("terraform_data", "state"),
        "module.inner": ("Module", "state"),
        'module.inner.terraform_data.deep["a.b"]': ("terraform_data", "module.inner"),
        'module.inner.terraform_data.deep["c"]': ("terraform_data", "module.inner"),
    }
    assert found["state"].metadata["resources"] == "4"
    assert "too large to be read whole" in found["state"].description
    assert found["terraform_data.one"].health is Health.UNKNOWN, "whether it is tainted is unknown"

    opened = await harness.open_resource("terraform_data.one")
    assert opened.manifest == ""
    assert "no values are shown: the state is too large to be read whole" in opened.notes

    state = json.loads(lab.state.read_text())
    state["serial"] += 1
    state["resources"] = [each for each in state["resources"] if each["name"] != "two"]
    lab.state.write_text(json.dumps(state))
    drifted = await harness.live_state()

    assert drifted.sync.status is SyncStatus.OUT_OF_SYNC
    assert drifted.sync.short_reason == "1 to add, 0 to change, 0 to destroy"
    assert "terraform_data.two" not in {each.id for _, each in drifted.resources}


def test_a_long_list_is_cut_and_says_how_much_more_there_is() -> None:
    addresses = [f"terraform_data.one[{n}]" for n in range(MOST_RESOURCES + 7)]

    view = list_view(addresses, lineage="l", serial=3, workspace="", why=TOO_LARGE)

    head, *resources, last = view.resources
    assert len(resources) == MOST_RESOURCES
    assert last.name == "… and 7 more"
    assert head.metadata == {"serial": "3", "resources": str(MOST_RESOURCES + 7)}


def test_a_list_that_is_itself_not_whole_claims_no_number() -> None:
    view = list_view(["a.b", "a.c"], lineage="", serial=1, workspace="", why=TOO_LARGE, is_cut=True)

    assert view.resources[0].metadata["resources"] == "more than 2"
    assert view.resources[-1].name == "… and more"


def test_addresses_stand_below_their_modules_whatever_their_keys_are() -> None:
    deep = r'module.a["x.y\"].module.z"].module.b[0].data.http_file.it["]."]'

    view = list_view(
        [deep, "module.a2.null_resource.it"], lineage="", serial=1, workspace="", why=TOO_LARGE
    )

    first, second = r'module.a["x.y\"].module.z"]', r'module.a["x.y\"].module.z"].module.b[0]'
    assert [(each.id, each.name, *each.parents) for each in view.resources[1:]] == [
        (first, first, "state"),
        (second, "module.b[0]", first),
        (deep, 'data.http_file.it["]."]', second),
        ("module.a2", "module.a2", "state"),
        ("module.a2.null_resource.it", "null_resource.it", "module.a2"),
    ]
    assert view.resources[3].kind == "http_file"
    assert view.resources[3].metadata == {"mode": "data"}
