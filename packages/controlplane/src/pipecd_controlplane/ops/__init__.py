# SPDX-License-Identifier: Apache-2.0
"""What is done to a control plane that runs: for now, faults on demand."""
