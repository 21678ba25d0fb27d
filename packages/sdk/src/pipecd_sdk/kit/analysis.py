# SPDX-License-Identifier: Apache-2.0
"""What an analysis looks at, as files say it: the document `AnalysisTemplate` and its parts.

Example:
    >>> text = "{apiVersion: pipecd.dev/v1beta1, kind: AnalysisTemplate, spec: {}}"
    >>> load_first_analysis_template([(".pipe/analysis.yaml", text)]).config.metrics
    {}
"""

from pipecd_model.config.analysis import (
    AnalysisTemplateConfig,
    ExpectedConfig,
    HttpConfig,
    HttpHeaderConfig,
    LogConfig,
    MetricConfig,
)
from pipecd_model.config.document import load_first_analysis_template
from pipecd_model.config.fault import ConfigFaultsError

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
