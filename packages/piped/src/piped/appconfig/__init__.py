# SPDX-License-Identifier: Apache-2.0
"""Which applications a repository holds, and what their files say."""

from piped.appconfig.discovery import Discovery
from piped.appconfig.reader import ApplicationFiles

__all__ = ["ApplicationFiles", "Discovery"]
