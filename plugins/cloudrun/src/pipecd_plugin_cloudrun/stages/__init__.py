# SPDX-License-Identifier: Apache-2.0
"""What stages do to one deploy target. Each may be killed anywhere and is then carried on."""
