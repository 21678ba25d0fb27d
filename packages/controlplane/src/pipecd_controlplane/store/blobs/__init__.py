# SPDX-License-Identifier: Apache-2.0
"""The blob store: immutable objects that are too large for rows, in a folder or a bucket."""
