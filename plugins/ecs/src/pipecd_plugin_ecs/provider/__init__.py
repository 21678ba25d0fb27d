# SPDX-License-Identifier: Apache-2.0
"""ECS and load balancers, as far as stages and live state need them."""
