# SPDX-License-Identifier: Apache-2.0
"""The functions that templates can call."""
