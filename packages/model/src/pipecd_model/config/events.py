# SPDX-License-Identifier: Apache-2.0
"""Events that change files: in an application file, and the document `EventWatcher`."""

from __future__ import annotations

from typing import Literal

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.schema import ConfigModel, Report


class ReplacementConfig(ConfigModel):
    """A value in a file that an event replaces."""

    file: str
    """The file that is changed."""
    yaml_field: str = ""
    """The path of the value, e.g. `$.spec.image`."""
    json_field: str = ""
    """Not supported."""
    hcl_field: str = msgspec.field(name="HCLField", default="")
    """Not supported."""
    regex: str = ""
    """An expression whose first group is replaced."""

    def check(self, report: Report) -> None:
        for key, value in (("jsonField", self.json_field), ("HCLField", self.hcl_field)):
            if value:
                report.fault(key, message="not supported", hint="use yamlField or regex")
                return
        if bool(self.yaml_field) == bool(self.regex):
            key = "regex" if self.regex else "yamlField"
            report.fault(key, message="set exactly one of yamlField and regex")
        elif self.yaml_field and not self.yaml_field.startswith("$"):
            report.fault(
                "yamlField",
                message=f"not a path: {self.yaml_field!r}",
                hint=f"must start with $, e.g. $.{self.yaml_field}",
            )
        elif self.regex:
            compiled = rules.regex(report, "regex", self.regex)
            if compiled is not None and not compiled.groups:
                report.fault(
                    "regex", message="has no group", hint="put ( ) around what is replaced"
                )


class GitUpdateConfig(ConfigModel):
    """A commit that writes an event's value into files."""

    commit_message: str = ""
    """A template that knows `.Value` and `.EventName`."""
    make_pull_request: bool = False
    """Push to a branch of its own."""
    replacements: tuple[ReplacementConfig, ...] = ()
    """What is changed; files are relative to the application's folder."""


class EventMatcherConfig(ConfigModel):
    """Which event is meant."""

    name: str
    """The event's name."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """What the event must carry, exactly."""


class EventHandlerConfig(ConfigModel):
    """What is done with it."""

    type: Literal["GIT_UPDATE"]
    """What is done."""
    config: GitUpdateConfig = msgspec.field(default_factory=GitUpdateConfig)


class EventWatcherConfig(ConfigModel):
    """An event that changes this application's files."""

    matcher: EventMatcherConfig
    handler: EventHandlerConfig


class EventConfig(ConfigModel):
    """An event, and what it changes; files are relative to the repository's root."""

    name: str
    """The event's name."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """What the event must carry, exactly."""
    replacements: tuple[ReplacementConfig, ...] = ()

    def check(self, report: Report) -> None:
        if not self.replacements and not report.is_broken("replacements"):
            report.fault("replacements", message="missing", hint="which values does it replace?")


class EventWatcherDocument(ConfigModel):
    """Events of a repository, in a file under `.pipe/`. Applications have `eventWatcher` today."""

    events: tuple[EventConfig, ...] = ()
