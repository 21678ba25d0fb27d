# SPDX-License-Identifier: Apache-2.0
"""The scripts that are on record in the data folder: ends them, and removes their records."""
