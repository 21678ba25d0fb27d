# SPDX-License-Identifier: Apache-2.0
"""How much traffic each variant gets: by pod selector, Istio or the Gateway API."""
