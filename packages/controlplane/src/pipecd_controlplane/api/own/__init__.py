# SPDX-License-Identifier: Apache-2.0
"""What upstream does not have: our own API, and the push to agents."""
