# SPDX-License-Identifier: Apache-2.0
"""What an analysis looks at, as files say it: the document `AnalysisTemplate` and its parts."""

from collections.abc import Iterable

from pipecd_model.config.analysis import (
    AnalysisTemplateConfig,
    ExpectedConfig,
    HttpConfig,
    HttpHeaderConfig,
    LogConfig,
    MetricConfig,
)
from pipecd_model.config.fault import ConfigFaultsError, Loaded

__all__ = [
    "AnalysisTemplateConfig",
    "ConfigFaultsError",
    "ExpectedConfig",
    "HttpConfig",
    "HttpHeaderConfig",
    "LogConfig",
    "MetricConfig",
    "load_first_analysis_template",
]


def load_first_analysis_template(
    files: Iterable[tuple[str, str | bytes]],
) -> Loaded[AnalysisTemplateConfig] | None:
    """Loads the first document `AnalysisTemplate` among files, each with its name; None without.

    Raises `ConfigFaultsError` for it, and for a file before it that cannot be read at all.

    Example:
        >>> text = "{apiVersion: pipecd.dev/v1beta1, kind: AnalysisTemplate, spec: {}}"
        >>> load_first_analysis_template([(".pipe/analysis.yaml", text)]).config.metrics
        {}
    """
    # A plugin that waits for work needs no reader of YAML, nor the other kinds of documents.
    from pipecd_model.config import document  # noqa: PLC0415

    return document.load_first_analysis_template(files)
