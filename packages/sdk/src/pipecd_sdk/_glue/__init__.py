# SPDX-License-Identifier: Apache-2.0
"""Everything between a plugin and the wire: flags, server, calls to piped. No author sees it."""
