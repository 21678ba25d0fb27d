# SPDX-License-Identifier: Apache-2.0
"""Finds and parses the application files of repositories, and reports them."""

from pipecd_piped.appconfig.discovery import Discovery
from pipecd_piped.appconfig.reader import ApplicationFiles
from pipecd_piped.appconfig.registration import Registrar

__all__ = ["ApplicationFiles", "Discovery", "Registrar"]
