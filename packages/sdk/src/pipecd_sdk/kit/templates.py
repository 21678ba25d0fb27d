# SPDX-License-Identifier: Apache-2.0
"""Go templates in what people write, rendered in a sandbox: no files, no network, no environment.

Example:
    >>> render('up{app="{{ .App.Name }}"}', {"App": {"Name": "shop"}}, name="the query")
    'up{app="shop"}'
"""

from pipecd_model.templates import BadTemplateError, render

__all__ = ["BadTemplateError", "render"]
