# SPDX-License-Identifier: Apache-2.0
"""AWS in tests: moto as a server of its own, with tasks that run or do not, and with faults."""
