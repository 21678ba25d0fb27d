# SPDX-License-Identifier: Apache-2.0
"""The shared state of control planes that use one PostgreSQL, see `usecases.shared_state`."""
