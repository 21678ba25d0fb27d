# SPDX-License-Identifier: Apache-2.0
"""What follows a successful deployment: other applications in a chain, and events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.event_limits import list_event_faults

EVENT_VALUES: Final = frozenset({"application", "commit", "deployment", "version"})
"""What the data of an event may name: the application, the commit's hash, the deployment's id, and
the version of the first artifact."""

_PLATFORMS: Final = ("KUBERNETES", "TERRAFORM", "LAMBDA", "CLOUDRUN", "ECS")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*\.([\w.]*)\s*\}\}")


class ChainApplicationConfig(ConfigModel):
    """Which applications follow."""

    name: str = ""
    """Its name."""
    kind: str = ""
    """One of `KUBERNETES`, `TERRAFORM`, `LAMBDA`, `CLOUDRUN`, `ECS`."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that it has."""

    def check(self, report: Report) -> None:
        if not (self.name or self.kind or self.labels):
            report.fault(message="needs name, kind or labels")
        rules.one_of(report, "kind", value=self.kind, known=_PLATFORMS)


class ChainConfig(ConfigModel):
    """The applications that are deployed after this one, in order."""

    applications: tuple[ChainApplicationConfig, ...] = ()
    """At least one."""

    def check(self, report: Report) -> None:
        if not self.applications and not report.is_broken("applications"):
            report.fault("applications", message="needs at least one application")


class PostSyncEventConfig(ConfigModel):
    """An event that a successful deployment registers."""

    name: str
    """What listeners know it by."""
    data: str = "{{ .commit }}"
    """May name `{{ .commit }}`, `{{ .version }}`, `{{ .deployment }}` and `{{ .application }}`."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that listeners ask for."""

    def check(self, report: Report) -> None:
        if not self.name and not report.is_broken("name"):
            report.fault("name", message="is empty")
        if not self.data.strip() and not report.is_broken("data"):
            report.fault("data", message="is empty")
        for unknown in sorted(set(_PLACEHOLDER.findall(self.data)) - EVENT_VALUES):
            report.fault(
                "data",
                message=f"there is no value {unknown!r}",
                hint=f"use one of {', '.join(sorted(EVENT_VALUES))}",
            )

        fixed = _PLACEHOLDER.sub("", self.data)
        if "{{" in fixed:
            report.fault("data", message="only names are replaced", hint="as in {{ .commit }}")
        # How long the values are is known when it is registered; the agent looks again then.
        for field, message in list_event_faults(self.name, fixed, self.labels):
            report.fault(field, message=message)

    def render(self, values: Mapping[str, str]) -> str:
        """Returns the data with the values in place of their names."""
        return _PLACEHOLDER.sub(lambda found: values[found[1]], self.data)


class PostSyncConfig(ConfigModel):
    """What follows a successful deployment that is not a roll-back."""

    chain: ChainConfig | None = None
    """Begins with the deployment itself; each block waits for those before it."""
    events: tuple[PostSyncEventConfig, ...] = ()
