# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes for tests: API server, controllers and scheduler, on simulated nodes.

`prepare` builds and fetches what it needs, once, into a cache; `real_cluster` starts one.
"""
