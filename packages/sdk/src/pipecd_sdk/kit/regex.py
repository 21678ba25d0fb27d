# SPDX-License-Identifier: Apache-2.0
"""Regular expressions that people write: RE2, which takes no longer for a bad one.

Needs the extra `patterns`.

Example:
    >>> compile_regex("v[0-9]+").is_found_in("image: web:v12")
    True
"""

from pipecd_model.regex import BadRegexError, Regex, compile_regex

__all__ = ["BadRegexError", "Regex", "compile_regex"]
