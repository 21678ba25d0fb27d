# SPDX-License-Identifier: Apache-2.0
"""What people call from a browser: upstream's WebService."""
