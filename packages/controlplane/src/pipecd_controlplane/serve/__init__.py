# SPDX-License-Identifier: Apache-2.0
"""Turns flags and files into the settings of a server; only the command line uses it."""
