# SPDX-License-Identifier: Apache-2.0
"""`pipectl`, the command line of PipeCD."""
