# SPDX-License-Identifier: Apache-2.0
"""Operations of a control plane: timed jobs, retention, backup and restore, faults for tests."""
