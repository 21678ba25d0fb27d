# SPDX-License-Identifier: Apache-2.0
"""The rules of our nouns, the files people write, and our errors. No I/O."""
