# SPDX-License-Identifier: Apache-2.0
"""The operator log, for all of piped; stage logs are `piped.report`'s."""

from pipecd_model.oplog import Logger, configure, log_context, logger

__all__ = ["Logger", "configure", "log_context", "logger"]
