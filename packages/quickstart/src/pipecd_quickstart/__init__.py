# SPDX-License-Identifier: Apache-2.0
"""`pipecd quickstart`: everything on one machine, under one folder, with a first deployment.

It starts the real programs as processes and talks to them only through files, git and the public
API, so that what a newcomer sees is what the product does.
"""
