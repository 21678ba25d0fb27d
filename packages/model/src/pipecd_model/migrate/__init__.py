# SPDX-License-Identifier: Apache-2.0
"""Older files, rewritten as they are written today: text in, text out, comments kept.

Every result is loaded and compared with what the original says. What cannot be rewritten so that
it says the same is refused, never written.
"""

from pipecd_model.migrate.application import migrate_application
from pipecd_model.migrate.piped import migrate_piped
from pipecd_model.migrate.rewritten import Rewritten

__all__ = ["Rewritten", "migrate_application", "migrate_piped"]
