# SPDX-License-Identifier: Apache-2.0
"""Go templates in files that people write: rendered in a sandbox, or explained to their author.

A template sees the data it is given and nothing else: no environment, no files, no network, no
clock, no chance. The engine is loaded when the first text with an action in it comes along.
"""

from pipecd_model.templates.explain import BadTemplateError
from pipecd_model.templates.limits import LIMITS, RenderLimits
from pipecd_model.templates.render import render

__all__ = ["LIMITS", "BadTemplateError", "RenderLimits", "render"]
