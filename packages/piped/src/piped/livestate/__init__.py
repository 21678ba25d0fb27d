# SPDX-License-Identifier: Apache-2.0
"""Live state and drift: what really runs, and whether that is what was deployed."""
