"""Let no time-out of the role, the database or the URL end a statement of a migration on PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, event, text

__all__ = ["TIMED_OUT", "end_none_of_a_session", "end_none_of_transactions"]

TIMED_OUT: Final = ("57014", "25P03", "25P04", "57P05")
"""The SQLSTATEs of a statement, a transaction or a session that a time-out ended."""
_FIRST: Final = "statement_timeout"
_ALL: Final = (
    _FIRST,
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
    "idle_session_timeout",
)
_SET: Final = text("SELECT set_config(name, '0', :here) FROM pg_settings WHERE name = ANY(:names)")


def end_none_of_transactions(engine: Engine) -> None:
    """Disable time-outs in each transaction of an engine.

    No setting is left in a session that a pooler gives to others.
    """

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        _set(connection, here=True)


def end_none_of_a_session(connection: Connection) -> None:
    """Disable time-outs in the session of a direct connection, whose statements run outside of transactions."""
    _set(connection, here=False)


def _set(connection: Connection, *, here: bool) -> None:
    # the shortest statement first, because it runs under the time-out that it removes
    connection.exec_driver_sql(f"SET {'LOCAL' if here else 'SESSION'} {_FIRST} = 0")
    names: dict[str, Any] = {"names": list(_ALL), "here": here}
    connection.execute(_SET, names)  # sets only those that exist: PostgreSQL 16 does not have all of them
