# SPDX-License-Identifier: Apache-2.0
"""A plan as `show -json` prints it becomes counts and a diff, without what is sensitive."""

from typing import Any

import pytest
from pipecd_plugin_terraform.changes import read_changes, read_messages
from pipecd_plugin_terraform.livestate import read_view
from pipecd_plugin_terraform.masking import Mask

from pipecd_sdk import Health, TargetError


def change(address: str, *actions: str, before: Any = None, after: Any = None, **more: Any) -> Any:
    given = {"actions": list(actions), "before": before, "after": after, **more}
    return {"address": address, "change": given}


def test_counts_are_those_of_the_program() -> None:
    plan = {
        "resource_changes": [
            change("a.add", "create", after={"x": 1}),
            change("a.change", "update", before={"x": 1}, after={"x": 2}),
            change("a.other", "update", before={"x": 1}, after={"x": 3}),
            change("a.same", "no-op", before={"x": 1}, after={"x": 1}),
            change("a.read", "read", after={"x": 1}),
        ]
    }
    found = read_changes(plan)

    assert found.counts == (0, 1, 2, 0)
    assert found.summary == "1 to add, 2 to change, 0 to destroy"
    assert "a.same" not in found.render()
    assert not found.is_empty


def test_a_replacement_is_added_and_destroyed_and_says_what_forces_it() -> None:
    given = change(
        "a.b",
        "delete",
        "create",
        before={"name": "x", "size": 1},
        after={"name": "y", "size": 1},
        after_unknown={"id": True},
        replace_paths=[["name"]],
    )

    found = read_changes({"resource_changes": [given]})

    assert found.counts == (0, 1, 0, 1)
    assert found.render().splitlines() == [
        "# a.b must be replaced",
        "+ id = (known after apply)",
        '~ name = "x" -> "y"  # forces replacement',
    ]


def test_what_is_sensitive_is_masked_and_its_change_is_still_shown() -> None:
    given = change(
        "a.b",
        "update",
        before={"list": [{"pw": "hush-1"}, "b"], "all": {"k": "hush-2"}, "same": "hush-3"},
        after={"list": [{"pw": "hush-4"}, "c"], "all": {"k": "hush-2"}, "same": "hush-3"},
        before_sensitive={"list": [{"pw": True}], "all": True, "same": True},
        after_sensitive={"list": [{"pw": True}], "all": True, "same": True},
    )

    text = read_changes({"resource_changes": [given]}).render()

    assert "hush" not in text
    assert text.splitlines()[1:] == [
        "~ list[0].pw = (sensitive value) -> (sensitive value)",
        '~ list[1] = "b" -> "c"',
    ]


def test_what_is_sensitive_and_stays_is_no_line() -> None:
    value = {"all": {"k": "hush-2", "n": [1]}}
    given = change(
        "a.b",
        "update",
        before=value,
        after=value,
        after_unknown={"all": {"n": [False]}},
        before_sensitive={"all": True},
        after_sensitive={"all": True},
    )

    assert read_changes({"resource_changes": [given]}).render() == "# a.b will be changed"


def test_a_change_far_within_a_long_value_is_shown() -> None:
    """As of a script of a machine: whoever approves the plan must see what changes."""
    before, after = (f"{'x' * 1_000}{word}{'y' * 1_000}" for word in ("old", "new"))
    given = change("a.b", "update", before={"script": before}, after={"script": after})

    line = read_changes({"resource_changes": [given]}).render().splitlines()[1]

    left, right = line.removeprefix("~ script = ").split(" -> ")
    assert "xold" in left
    assert "xnew" in right
    assert len(line) < 1_000


def test_a_secret_is_masked_before_a_value_is_cut() -> None:
    text = f"{'x' * 395}hush-hush"
    plan = {"resource_changes": [change("a.b", "create", after={"long": text})]}

    assert "hush" not in read_changes(plan, Mask(["hush-hush"])).render()


def test_an_output_changes_also_where_no_value_can_be_shown() -> None:
    for before, after in ((f"{'x' * 500}a", f"{'x' * 500}b"), (None, [None]), ([None], [])):
        outputs = {"it": {"actions": ["update"], "before": before, "after": after}}

        found = read_changes({"output_changes": outputs})

        assert not found.is_empty
        assert "it" in found.render().splitlines()[1]


def test_the_messages_of_a_plan_say_what_changes_without_values() -> None:
    def planned(address: str, action: str, **more: Any) -> Any:
        return {"change": {"resource": {"addr": address}, "action": action, **more}}

    messages = [
        planned("a.add", "create"),
        planned("a.change", "update"),
        planned("a.new", "replace"),
        planned("a.gone", "delete"),
        planned("a.let", "remove"),
        planned("a.here", "import"),
        planned("a.to", "move", previous_resource={"addr": "a.from"}),
        planned("a.same", "noop"),
        {"change": 7},
        {"outputs": {"b": {"action": "update"}, "a": {"action": "noop"}, "c": 7}},
    ]

    found = read_messages(messages, Mask(), is_applicable=True)

    assert found.summary == "1 to import, 2 to add, 1 to change, 2 to destroy, 1 to move"
    assert found.render().splitlines()[2::2] == [
        "# a.add will be created",
        "# a.change will be changed",
        "# a.new must be replaced",
        "# a.gone will be destroyed",
        "# a.let will be forgotten, and not destroyed",
        "# a.here will be imported",
        "# a.to stays, was a.from",
        "# outputs",
    ]
    assert read_messages([], Mask(), is_applicable=False).is_empty


def test_a_plan_that_the_program_would_apply_is_not_empty() -> None:
    found = read_changes({}, is_applicable=True)

    assert (found.is_empty, found.summary) == (False, "changes to the state only")


def test_a_resource_with_very_many_values_is_compared() -> None:
    """Each value with its own: with all of the others it would take hours."""
    rules = [{"port": number, "open": True} for number in range(20_000)]
    given = change("a.b", "update", before={"rules": rules}, after={"rules": [*rules, "new"]})

    found = read_changes({"resource_changes": [given]})

    assert found.render() == '# a.b will be changed\n+ rules[20000] = "new"'


def test_outputs_imports_and_moves_are_changes_too() -> None:
    outputs = {
        "new": {"actions": ["create"], "before": None, "after": "x"},
        "pw": {"actions": ["update"], "before": "a", "after": "b", "before_sensitive": True,
               "after_sensitive": True},
        "same": {"actions": ["no-op"], "before": "a", "after": "a"},
    }  # fmt: skip
    found = read_changes({"output_changes": outputs})
    assert found.summary == "changes to outputs only"
    assert found.render() == (
        '# outputs\n+ new = "x"\n~ pw = (sensitive value) -> (sensitive value)'
    )

    imported = change("a.b", "no-op", importing={"id": "i"})
    moved = {**change("a.new", "no-op"), "previous_address": "a.old"}
    found = read_changes({"resource_changes": [imported, moved]})
    assert found.counts == (1, 0, 0, 0)
    assert found.summary == "1 to import, 0 to add, 0 to change, 0 to destroy, 1 to move"
    assert read_changes({}).is_empty


def test_a_long_diff_is_cut() -> None:
    many = {f"k{number}": "x" * 1_000 for number in range(6_000)}

    lines = read_changes({"resource_changes": [change("a.b", "create", after=many)]}).render()

    assert lines.endswith("… and 1001 more lines")
    assert max(map(len, lines.splitlines())) < 500


@pytest.mark.parametrize("plan", [{"resource_changes": [1]}, {"output_changes": []}])
def test_what_is_no_plan_is_refused(plan: Any) -> None:
    if plan.get("output_changes") == []:
        assert read_changes(plan).is_empty
        return
    with pytest.raises(TargetError):
        read_changes(plan)


def test_a_state_is_a_tree_with_what_is_wrong_in_it() -> None:
    resources = [
        {"address": "a.b", "type": "a", "tainted": True},
        {"address": "a.b", "type": "a", "deposed_key": "01"},
    ]
    deep = {"address": "module.x.module.y", "resources": [{"address": "module.x.module.y.c.d"}]}
    outer = {"address": "module.x", "child_modules": [deep]}
    root = {"resources": resources, "child_modules": [outer]}

    view = read_view({"values": {"root_module": root}}, lineage="l", serial=3, workspace="")

    assert [(each.id, each.name, *each.parents) for each in view.resources] == [
        ("state", "default"),
        ("a.b", "a.b", "state"),
        ("a.b (deposed 01)", "a.b (deposed 01)", "state"),
        ("module.x", "module.x", "state"),
        ("module.x.module.y", "module.y", "module.x"),
        ("module.x.module.y.c.d", "c.d", "module.x.module.y"),
    ]
    assert [each.health for each in view.resources[1:3]] == [Health.UNHEALTHY] * 2
    with pytest.raises(TargetError):
        read_view(
            {"values": {"root_module": {"resources": [7]}}}, lineage="", serial=0, workspace=""
        )
