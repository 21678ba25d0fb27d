# SPDX-License-Identifier: Apache-2.0
"""Applications on Amazon ECS."""
