# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Google Cloud: there is no emulator of Cloud Run."""
