# SPDX-License-Identifier: Apache-2.0
"""Property tests here prove what holds, not how fast the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("model", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("model")
