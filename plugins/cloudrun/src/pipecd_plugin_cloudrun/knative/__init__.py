# SPDX-License-Identifier: Apache-2.0
"""Manifests as people have them (Knative, the API's version 1) as bodies of the API's version 2.

Each field is translated, or named in a refusal: nothing is dropped silently. What only the platform
itself writes (`status`, `run.googleapis.com/operation-id`) says nothing and is passed over.
"""
