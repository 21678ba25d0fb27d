# SPDX-License-Identifier: Apache-2.0
"""Live state and drift: which resources run, and whether they are what was deployed."""
