# SPDX-License-Identifier: Apache-2.0
"""SQLite as a database: one file in a folder that one process owns."""
