# SPDX-License-Identifier: Apache-2.0
"""What a person sees who opens a resource of the live state: its values, masked, and its plan."""

from pipecd_plugin_terraform.changes import Changes
from pipecd_plugin_terraform.livestate import ROOT, StateView
from pipecd_sdk import Details, Resource, ResourceGoneError

MOST_LINES = 2_000


def describe(
    view: StateView, resource: Resource, changes: Changes | None, *, why_not: str
) -> Details:
    """Returns the details of a resource, a module or the state. Raises ResourceGoneError.

    `why_not`: why there are no changes that it could be compared by.
    """
    if not any(each.id == resource.id for each in view.resources):
        raise ResourceGoneError(
            f"{resource.name} is not in the state any more",
            hint="the live state shows what is there now",
        )
    lines = view.describe(resource.id)
    notes: list[str] = []
    if lines is None:
        lines = _describe_module(view, resource.id)
    if len(lines) > MOST_LINES:
        notes.append(f"{len(lines) - MOST_LINES} more lines are not shown")
        lines = lines[:MOST_LINES]
    if view.why_listed:
        notes.append(f"no values are shown: {view.why_listed}")
    if changes is None:
        notes.append(f"it is not compared with git: {why_not}")
    return Details(
        manifest="".join(f"{line}\n" for line in lines),
        language="yaml",
        difference=None if changes is None else _compare(resource.id, changes),
        notes=notes,
    )


def _describe_module(view: StateView, wanted: str) -> list[str]:
    if wanted == ROOT:
        return [
            f"workspace: {view.workspace or 'default'}",
            f"serial: {view.serial}",
            f"lineage: {view.lineage}",
            f"resources: {len(view.values)}",
        ]
    below = sum(1 for each in view.values if each.startswith(f"{wanted}."))
    return [f"module: {wanted}", f"resources: {below}"]


def _compare(wanted: str, changes: Changes) -> str:
    if wanted == ROOT:
        return changes.render()
    found = [
        each.render()
        for each in changes.resources
        if each.is_change and (each.address == wanted or each.address.startswith(f"{wanted}."))
    ]
    return "\n\n".join(found)
