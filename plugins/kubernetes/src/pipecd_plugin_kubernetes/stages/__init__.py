# SPDX-License-Identifier: Apache-2.0
"""One module per kind of stage: a cluster in, what was done out."""
