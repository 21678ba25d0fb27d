# SPDX-License-Identifier: Apache-2.0
"""The resources of a state as a tree by module, without their values. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from pipecd_plugin_terraform.changes import iter_leaves, shorten
from pipecd_plugin_terraform.masking import Mask, collect_sensitive
from pipecd_sdk import Health, Resource, TargetError
from pipecd_sdk.kit.text import make_printable_line

ROOT: Final = "state"
"""The id of the state itself, under which everything stands."""
MODULE: Final = "Module"
TOO_LARGE: Final = "the state is too large to be read whole"
MAY_HOLD_VALUES: Final = "the variables name a secret, which may stand anywhere in the state"
MOST_RESOURCES: Final = 5_000
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_DEEPEST: Final = 60
_MODULE: Final = re.compile(r'module\.[^.\[]+(?:\[(?:\d+|"(?:[^"\\]|\\.)*")\])?(?=\.)')
"""A module at the beginning of an address; the key of one may hold any characters."""


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
    why_listed: str = ""
    """Why only addresses are shown; empty where values are."""

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
    head = _make_head(
        workspace,
        "" if count else "nothing is deployed here",
        {"serial": str(serial), "resources": str(count), "version": version},
    )
    if (more := len(found) - MOST_RESOURCES) > 0:
        found = [*found[:MOST_RESOURCES], _make_rest(f"… and {more} more")]
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


def list_view(
    addresses: Sequence[str],
    *,
    lineage: str,
    serial: int,
    workspace: str,
    why: str,
    is_cut: bool = False,
) -> StateView:
    """Returns what is in a state by the addresses of its resources alone.

    `why`: why nothing else is shown. `is_cut`: there are more than these.
    """
    found = list(islice(_list_resources(addresses), MOST_RESOURCES))
    more = len(addresses) - sum(each.kind != MODULE for each in found)
    if more or is_cut:
        found.append(_make_rest("… and more" if is_cut else f"… and {more} more"))
    count = f"more than {len(addresses)}" if is_cut else str(len(addresses))
    head = _make_head(
        workspace,
        f"{why}: its resources are listed, without health and values",
        {"serial": str(serial), "resources": count},
    )
    return StateView(
        lineage=lineage,
        serial=serial,
        workspace=workspace,
        values=dict.fromkeys(addresses, _NOTHING),
        resources=(head, *found),
        mask=Mask(),
        why_listed=why,
    )


def _list_resources(addresses: Sequence[str]) -> Iterator[Resource]:
    modules: set[str] = set()
    for address in addresses:
        parent, start = ROOT, 0
        while (step := _MODULE.match(address, start)) is not None:
            module = address[: step.end()]
            if module not in modules:
                modules.add(module)
                yield _make_module(module, address[:start].removesuffix("."), parent)
            parent, start = module, step.end() + 1
        name = address[start:]
        mode, _, typed = name.partition(".") if name.startswith("data.") else ("managed", "", name)
        yield Resource(
            id=address,
            name=name,
            kind=typed.partition(".")[0],
            parents=[parent],
            metadata={"mode": mode},
        )


def _make_head(workspace: str, description: str, metadata: Mapping[str, str]) -> Resource:
    return Resource(
        id=ROOT,
        name=workspace or "default",
        kind="State",
        health=Health.HEALTHY,
        description=description,
        metadata=metadata,
    )


def _make_rest(name: str) -> Resource:
    """Returns what stands for the resources that are not shown."""
    return Resource(id="…", name=name, kind="Resources", parents=[ROOT])


def _make_module(address: str, prefix: str, parent: str) -> Resource:
    return Resource(
        id=address,
        name=address.removeprefix(f"{prefix}.") if prefix else address,
        kind=MODULE,
        parents=[parent],
        health=Health.HEALTHY,
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
        yield _make_module(address, prefix, parent)
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
