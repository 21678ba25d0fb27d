# SPDX-License-Identifier: Apache-2.0
"""What is kept, by noun. The nouns know a `Database`; `sql` is the one that keeps it."""
