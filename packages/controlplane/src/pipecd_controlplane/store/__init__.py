# SPDX-License-Identifier: Apache-2.0
"""What is stored, one module per kind of entity, over a `Database`; `sqlite` is its driver."""
