# SPDX-License-Identifier: Apache-2.0
"""The only code that talks to monitoring systems and other addresses."""
