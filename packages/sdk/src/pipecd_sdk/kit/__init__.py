# SPDX-License-Identifier: Apache-2.0
"""What several platforms need: shell, structural diff, YAML, tools, images, path patterns, retries.

The SDK itself never imports it: a plugin pays for the parts that it names.

Example:
    from pipecd_sdk.kit import diff, patterns, shell, tools, yaml
"""
