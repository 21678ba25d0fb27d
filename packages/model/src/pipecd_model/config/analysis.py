# SPDX-License-Identifier: Apache-2.0
"""What an analysis looks at: the document `AnalysisTemplate`."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pipecd_model.config.constraints import AnyGiven
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.values import Duration


class ExpectedConfig(ConfigModel):
    """The range that a value should be in."""

    min: float | None = None
    """At least."""
    max: float | None = None
    """At most."""


class MetricConfig(ConfigModel):
    """A number that a monitoring system knows, and what it should be."""

    constraints: ClassVar = (
        *(
            AnyGiven(
                key=key,
                among=(key,),
                unless="template",
                message="missing",
                hint="a metric needs provider, query, interval",
            )
            for key in ("provider", "query", "interval")
        ),
        AnyGiven(
            key="expected",
            section="expected",
            among=("min", "max"),
            when={"strategy": "THRESHOLD"},
            unless="template",
            message="missing",
            hint="give expected.min or expected.max",
        ),
    )

    strategy: Literal["THRESHOLD", "PREVIOUS", "CANARY_BASELINE", "CANARY_PRIMARY"] = "THRESHOLD"
    """What it is compared with: a range, the last deployment, or another variant."""
    provider: str = ""
    """The name of an analysis provider of the piped."""
    query: str = ""
    """What the provider is asked; a template."""
    interval: Duration = Duration()
    """How often it is asked."""
    expected: ExpectedConfig | None = None
    """The range of the strategy THRESHOLD."""
    failure_limit: int = 0
    """How many answers may be out of range."""
    skip_on_no_data: bool = False
    """Is no answer a good answer?"""
    timeout: Duration = Duration(seconds=30)
    """How long one query may take."""
    deviation: Literal["EITHER", "HIGH", "LOW"] = "EITHER"
    """Which way of differing from the other variant counts."""
    canary_args: dict[str, str] = msgspec.field(default_factory=dict)
    """What the query of the canary knows as `.VariantCustomArgs`."""
    baseline_args: dict[str, str] = msgspec.field(default_factory=dict)
    """The same for the baseline."""
    primary_args: dict[str, str] = msgspec.field(default_factory=dict)
    """The same for the primary."""


class LogConfig(ConfigModel):
    """Log lines that there should be none of."""

    provider: str = ""
    """The name of an analysis provider of the piped."""
    query: str = ""
    """What the provider is asked."""
    interval: Duration = Duration()
    """How often it is asked."""
    failure_limit: int = 0
    """How many answers may be bad."""
    skip_on_no_data: bool = False
    """Is no answer a good answer?"""
    timeout: Duration = Duration(seconds=30)
    """How long one query may take."""


class HttpHeaderConfig(ConfigModel):
    """A header of a request."""

    key: str
    """Its name."""
    value: str = ""
    """What it says."""


class HttpConfig(ConfigModel):
    """An address that should answer."""

    moved: ClassVar = {"expected": "use expectedCode"}

    url: str = msgspec.field(name="url", default="")
    """The address."""
    method: str = "GET"
    """How it is asked."""
    headers: tuple[HttpHeaderConfig, ...] = ()
    expected_code: int = 0
    """The status that it should answer."""
    expected_response: str = ""
    """The body that it should answer."""
    interval: Duration = Duration()
    """How often it is asked."""
    failure_limit: int = 0
    """How many answers may be bad."""
    skip_on_no_data: bool = False
    """Is no answer a good answer?"""
    timeout: Duration = Duration(seconds=30)
    """How long one request may take."""


class AnalysisTemplateConfig(ConfigModel):
    """Analyses that several applications share, each under its name."""

    metrics: dict[str, MetricConfig] = msgspec.field(default_factory=dict)
    """A name, and a number."""
    logs: dict[str, LogConfig] = msgspec.field(default_factory=dict)
    """A name, and log lines."""
    https: dict[str, HttpConfig] = msgspec.field(default_factory=dict)
    """A name, and an address."""

    @property
    def names(self) -> frozenset[str]:
        """All templates that a stage may name."""
        return frozenset({*self.metrics, *self.logs, *self.https})
