# SPDX-License-Identifier: Apache-2.0
"""How the connections of this control plane to its database are doing, for the page of metrics."""

from pipecd_controlplane.store.postgres.database import PostgresDatabase
from pipecd_controlplane.usecases.replicated.heartbeat import Heartbeat
from pipecd_controlplane.usecases.shared_state import Measurement


def measure_database(database: PostgresDatabase, heartbeat: Heartbeat) -> list[Measurement]:
    """Returns the state of the pool, and of the session that hears other control planes."""
    pool, session = database.measure_pool(), database.session
    return [
        _measure(
            "database_connections", "Connections in the pool that are open.", pool.open_connections
        ),
        _measure(
            "database_connections_idle", "Of these, how many are free.", pool.idle_connections
        ),
        _measure("database_connections_most", "The limit of the pool.", pool.most_connections),
        _measure("database_units", "Units of work that run or wait for a connection.", pool.units),
        _measure(
            "database_session_up",
            "Whether the session that hears other servers is open.",
            session.is_held,
        ),
        _measure("database_session_lost", "How often that session was lost.", session.gaps),
        _measure(
            "database_notify_lag_seconds",
            "How long the last notice of this server to itself took.",
            heartbeat.lag_seconds,
        ),
    ]


def _measure(name: str, description: str, value: float) -> Measurement:
    return Measurement(name=f"pipecd_{name}", description=description, value=value)
