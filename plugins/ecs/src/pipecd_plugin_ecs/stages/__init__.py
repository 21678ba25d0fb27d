# SPDX-License-Identifier: Apache-2.0
"""What the stages do, on one deploy target each."""
