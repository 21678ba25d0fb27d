# SPDX-License-Identifier: Apache-2.0
"""What git hosts send: how each of them signs a hook, and how it says what was pushed."""
