# SPDX-License-Identifier: Apache-2.0
"""What pipeds call: upstream's PipedService."""
