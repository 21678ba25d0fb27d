# SPDX-License-Identifier: Apache-2.0
"""The Cloud Run API of deploy targets."""
