# SPDX-License-Identifier: Apache-2.0
"""Finds and parses the application files of repositories, and reports them."""

from piped.appconfig.discovery import Discovery
from piped.appconfig.reader import ApplicationFiles

__all__ = ["ApplicationFiles", "Discovery"]
