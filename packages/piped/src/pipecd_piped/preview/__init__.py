# SPDX-License-Identifier: Apache-2.0
"""Plan preview: what a branch would change once it is merged. Nothing of a repository is run."""
