# SPDX-License-Identifier: Apache-2.0
"""What an analysis looks at: the document `AnalysisTemplate`."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from pipecd_model.config.constraints import AnyGiven, Constraint, InRange, NotTogether
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import Duration

_COMMON: tuple[Constraint, ...] = (
    InRange(key="interval", minimum=0, message="must be positive: {value}"),
    InRange(key="timeout", minimum=0, message="must be positive: {value}"),
    InRange(key="failureWindow", minimum=0, message="must be positive: {value}"),
    InRange(key="failureLimit", minimum=0, message="must not be negative: {value}"),
)
"""What holds for everything that is looked at again and again."""


def _require(key: str, *others: str, hint: str) -> AnyGiven:
    return AnyGiven(key=key, among=(key, *others), unless="template", message="missing", hint=hint)


class ExpectedConfig(ConfigModel):
    """The range that a value should be in, its ends included."""

    min: float | None = None
    """At least."""
    max: float | None = None
    """At most."""

    def check(self, report: Report) -> None:
        for key, value in (("min", self.min), ("max", self.max)):
            if value is not None and not report.is_broken(key) and not math.isfinite(value):
                report.fault(key, message=f"not a number that a value can have: {value}")
        if (
            self.min is None
            or self.max is None
            or report.is_broken("min")
            or report.is_broken("max")
        ):
            return
        if self.min > self.max:
            report.fault("min", message=f"no value is at least {self.min} and at most {self.max}")


class MetricConfig(ConfigModel):
    """A number that a monitoring system knows, and what it should be."""

    constraints: ClassVar = (
        _require("provider", "url", hint="a metric needs provider, query, interval"),
        _require("query", "url", hint="a metric needs provider, query, interval"),
        _require("interval", hint="a metric needs provider, query, interval"),
        NotTogether(key="url", others=("provider",), message="is asked without a provider"),
        *_COMMON,
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
    url: str = msgspec.field(name="url", default="")
    """In place of provider and query: an address that answers with JSON; a template."""
    json_path: str = ""
    """Where the numbers are in an answer that is JSON, e.g. `$.data[*].value`."""
    interval: Duration = Duration()
    """How often it is asked."""
    expected: ExpectedConfig | None = None
    """The range of the strategy THRESHOLD."""
    failure_limit: int = 0
    """How many answers may be out of range."""
    failure_window: Duration = Duration()
    """Only failures of this last time count, e.g. `10m`; not given, none is ever forgotten."""
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

    constraints: ClassVar = (
        *(
            _require(key, hint="logs need provider, query, interval")
            for key in ("provider", "query", "interval")
        ),
        InRange(key="maxMatches", minimum=0, message="must not be negative: {value}"),
        *_COMMON,
    )

    provider: str = ""
    """The name of an analysis provider of the piped."""
    query: str = ""
    """Which lines the provider should look for; a template."""
    interval: Duration = Duration()
    """How often it is asked."""
    max_matches: int = 0
    """How many matching lines of one interval are still fine."""
    failure_limit: int = 0
    """How many answers may be bad."""
    failure_window: Duration = Duration()
    """Only failures of this last time count, e.g. `10m`; not given, none is ever forgotten."""
    skip_on_no_data: bool = False
    """Read for compatibility: no matching lines are a good answer."""
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
    constraints: ClassVar = (
        *(_require(key, hint="a check needs url, interval") for key in ("url", "interval")),
        InRange(
            key="expectedCode",
            minimum=100,
            maximum=599,
            message="not a status of HTTP: {value}",
        ),
        *_COMMON,
    )

    url: str = msgspec.field(name="url", default="")
    """The address; a template."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    """How it is asked."""
    headers: tuple[HttpHeaderConfig, ...] = ()
    """Headers of the request; what they say is a template."""
    body: str = ""
    """What is sent with the request; a template."""
    expected_code: int = 200
    """The status that it should answer."""
    expected_response: str = ""
    """The body that it should answer; blanks around it do not count."""
    expected_response_pattern: str = ""
    """A regular expression (RE2) that is to be found in the body."""
    interval: Duration = Duration()
    """How often it is asked."""
    failure_limit: int = 0
    """How many answers may be bad."""
    failure_window: Duration = Duration()
    """Only failures of this last time count, e.g. `10m`; not given, none is ever forgotten."""
    skip_on_no_data: bool = False
    """Read for compatibility: no answer is a bad answer."""
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
