# SPDX-License-Identifier: Apache-2.0
"""What the tests of several packages share: stand-ins, servers, hostile clients."""
