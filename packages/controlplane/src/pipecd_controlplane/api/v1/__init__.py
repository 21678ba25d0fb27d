# SPDX-License-Identifier: Apache-2.0
"""The services of `pipecd.api.v1` and `pipecd.push.v1`: what upstream does not have."""
