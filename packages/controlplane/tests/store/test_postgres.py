# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL keeps the contract of a database, and lives through what servers do."""

from pipecd_test_support.database_contract import DatabaseContract


class TestContract(DatabaseContract):
    pass
