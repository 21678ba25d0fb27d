# SPDX-License-Identifier: Apache-2.0
"""The scripts that this data folder has on record: ended in time, and forgotten in the end."""
