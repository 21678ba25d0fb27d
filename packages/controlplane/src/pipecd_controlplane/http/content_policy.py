# SPDX-License-Identifier: Apache-2.0
"""Content security policies: what the pages of this site may load, run and be framed by."""

import base64
import hashlib
from typing import Final

STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
)
"""Of everything of ours: files of this site, nothing written into a page, no other host.

Without `form-action`: the form that begins single sign-on is answered with a redirect to the
provider, and browsers apply it to that too.
"""

FOR_UPSTREAM: Final = (
    "default-src 'self'; img-src 'self' https: data:; style-src 'self' 'unsafe-inline'"
    " https://fonts.googleapis.com; font-src 'self' https://fonts.gstatic.com;"
    " frame-ancestors 'none'; base-uri 'self'; object-src 'none'"
)
"""Of a page that somebody else has built, upstream's for example: it writes styles into itself."""


def allow_style(style: str) -> str:
    """Returns the strict policy with one style that is written into the page itself."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return STRICT.replace("style-src 'self'", f"style-src 'self' 'sha256-{digest}'")
