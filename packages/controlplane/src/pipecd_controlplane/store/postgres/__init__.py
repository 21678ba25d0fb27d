# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL as the database of control planes that share one."""
