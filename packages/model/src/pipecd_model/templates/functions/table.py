# SPDX-License-Identifier: Apache-2.0
"""All functions that a template can call, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipecd_model.templates.functions.builtins import BUILTINS
from pipecd_model.templates.functions.forms import FORMS
from pipecd_model.templates.functions.letters import LETTERS
from pipecd_model.templates.functions.lists import LISTS
from pipecd_model.templates.functions.maps import MAPS
from pipecd_model.templates.functions.numbers import NUMBERS
from pipecd_model.templates.functions.paths import PATHS
from pipecd_model.templates.functions.regexes import REGEXES
from pipecd_model.templates.functions.signature import Function
from pipecd_model.templates.functions.texts import TEXTS
from pipecd_model.templates.functions.urls import URLS
from pipecd_model.templates.functions.versions import VERSIONS

FUNCTIONS: Final[Mapping[str, Function]] = {
    **BUILTINS,
    **FORMS,
    **LETTERS,
    **LISTS,
    **MAPS,
    **NUMBERS,
    **PATHS,
    **REGEXES,
    **TEXTS,
    **URLS,
    **VERSIONS,
}
"""sprig's own `slice` hides the one of Go, there as here."""
