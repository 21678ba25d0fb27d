# SPDX-License-Identifier: Apache-2.0
"""What is outside: the API of AWS Lambda, packages of code, repositories with sources."""
