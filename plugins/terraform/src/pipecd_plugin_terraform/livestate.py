# SPDX-License-Identifier: Apache-2.0
"""The resources of a state as a tree by module, without their values. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_terraform.changes import iter_leaves, shorten
from pipecd_plugin_terraform.masking import Mask, collect_sensitive
from pipecd_sdk import Health, Resource, TargetError
from pipecd_sdk.kit.text import make_printable_line

ROOT: Final = "state"
"""The id of the state itself, under which everything stands."""
MOST_RESOURCES: Final = 5_000
_DEEPEST: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """A state at one moment."""

    lineage: str
    serial: int
    workspace: str
    values: Mapping[str, Mapping[str, Any]]
    """The resources as the program has them, by id."""
    resources: tuple[Resource, ...]
    mask: Mask
    """Of the sensitive values, which may stand elsewhere too."""

    def describe(self, resource: str) -> list[str] | None:
        """Returns the lines of a resource's values, masked; None when it is not in the state."""
        found = self.values.get(resource)
        if found is None:
            return None
        masks = found.get("sensitive_values")
        return [
            self.mask.apply(f"{each.path}: {shorten(self.mask.apply(each.text))}")
            for each in iter_leaves(found.get("values"), masks, None)
        ]


def read_view(state: Mapping[str, Any], *, lineage: str, serial: int, workspace: str) -> StateView:
    """Returns what a state as `show -json` prints it holds. Raises TargetError."""
    values: dict[str, Mapping[str, Any]] = {}
    try:
        root = (state.get("values") or {}).get("root_module") or {}
        found = list(_read_module(root, ROOT, values, 0))
        version = str(state.get("terraform_version") or "")
    except (AttributeError, KeyError, TypeError) as error:
        raise TargetError(f"the state cannot be read: {type(error).__name__}") from error
    count = len(values)
    head = Resource(
        id=ROOT,
        name=workspace or "default",
        kind="State",
        health=Health.HEALTHY,
        description="" if count else "nothing is deployed here",
        metadata={"serial": str(serial), "resources": str(count), "version": version},
    )
    if (more := len(found) - MOST_RESOURCES) > 0:
        found = found[:MOST_RESOURCES]
        found.append(Resource(id="…", name=f"… and {more} more", kind="Resources", parents=[ROOT]))
    return StateView(
        lineage=lineage,
        serial=serial,
        workspace=workspace,
        values=values,
        resources=(head, *found),
        mask=Mask(
            text
            for each in values.values()
            for text in collect_sensitive(each.get("values"), each.get("sensitive_values"))
        ),
    )


def _read_module(
    module: Mapping[str, Any], parent: str, values: dict[str, Mapping[str, Any]], depth: int
) -> Iterator[Resource]:
    if depth > _DEEPEST:
        raise TargetError("the modules of the state are nested too deeply")
    prefix = make_printable_line(str(module.get("address") or ""))
    for each in module.get("resources") or []:
        yield _read_resource(each, prefix, parent, values)
    for child in module.get("child_modules") or []:
        address = make_printable_line(str(child["address"]))
        yield Resource(
            id=address,
            name=address.removeprefix(f"{prefix}.") if prefix else address,
            kind="Module",
            parents=[parent],
            health=Health.HEALTHY,
        )
        yield from _read_module(child, address, values, depth + 1)


def _read_resource(
    given: Mapping[str, Any], prefix: str, parent: str, values: dict[str, Mapping[str, Any]]
) -> Resource:
    address = make_printable_line(str(given["address"]))
    health, description, key = Health.HEALTHY, "", address
    if deposed := given.get("deposed_key"):
        key = f"{address} (deposed {make_printable_line(str(deposed))})"
        health, description = Health.UNHEALTHY, "replaced, and not destroyed yet"
    elif given.get("tainted"):
        health, description = Health.UNHEALTHY, "tainted: the next apply replaces it"
    values[key] = given
    return Resource(
        id=key,
        name=key.removeprefix(f"{prefix}.") if prefix else key,
        kind=make_printable_line(str(given.get("type") or "")),
        parents=[parent],
        health=health,
        description=description,
        metadata={
            "mode": make_printable_line(str(given.get("mode") or "")),
            "provider": make_printable_line(str(given.get("provider_name") or "")),
        },
    )
