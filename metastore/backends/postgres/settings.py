"""The settings of a PostgreSQL session. They override those of a URL, a role, a database or a pooler.

A direct connection gets the settings once, when it connects. Behind a pooler a session keeps nothing: :data:`AHEAD` is
sent with each commit that needs it, and :func:`check_session` refuses settings that cannot be made for one transaction.
DateStyle, IntervalStyle, TimeZone, bytea_output and xmlbinary have no effect here: times are numbers, documents are
text. ``search_path`` belongs to the user: it says where the tables are.
"""

from __future__ import annotations

from typing import Any

import psycopg

from metastore.errors import BackendRefused, InvalidArgument
from metastore.urls import Url

_SETTINGS = {
    # READ COMMITTED, because a statement that has waited for a lock must look at the newest row again
    "default_transaction_isolation": "'read committed'",
    # all our statements use an index; so must a plan that was made while a table was small
    "enable_seqscan": "off",
    "enable_indexscan": "on",
    "enable_nestloop": "on",
    # a generic plan does not know how short a page is: it would read all children by a bitmap, which has no order, and
    # sort them, with parallel workers
    "plan_cache_mode": "force_generic_plan",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    # off would mean: the NULL of an array literal is the text "NULL"
    "array_nulls": "on",
    # off would mean: a backslash in a literal is an escape
    "standard_conforming_strings": "on",
    # on would mean: "= NULL" is "IS NULL"
    "transform_null_equals": "off",
    # error would mean: the server hides that a commit was stopped while it waited for a replica
    "client_min_messages": "warning",
    # not needed: the call's deadline ends a wait
    "lock_timeout": "0",
}
SESSION = "; ".join(f"SET {name} = {value}" for name, value in _SETTINGS.items())
"""The first statements on a direct connection."""

_FOLDER = "substring(pg_relation_filepath('pg_class') FROM '.*/')"
RUN = f"(extract(epoch FROM pg_postmaster_start_time())::text || ' ' || {_FOLDER})"
"""The run of the server: its start time, and the folder of the database.

A database that is created again has another folder; VACUUM FULL changes only its files. (Reading the database's number
would cost twice as much, because the server would plan a separate query.)
"""

AHEAD = f"""SELECT set_config('array_nulls', 'on', true)
  LIMIT CASE WHEN %(run)s::text IS NULL OR {RUN} = %(run)s THEN 1 ELSE -1 END"""
"""Sent before a commit's statements behind a pooler, for the same transaction.

It fails (invalid_row_count_in_limit_clause) if the server's run is not the one that the commit names.
"""

LASTING = """SELECT set_config(name, '0', true) FROM pg_settings
  WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"""
"""Disables the time-outs of a transaction, so that the transaction may run and be idle as long as it needs.

(The last of the three is new in PostgreSQL 17.)
"""

ASKED = f"""SELECT pg_backend_pid(), current_setting('server_encoding'), current_setting('client_encoding'),
  current_setting('transaction_isolation'), current_setting('client_min_messages'), pg_is_in_recovery(),
  {RUN}"""
"""The questions on a new connection: which process answers, the arguments of :func:`check_session`, whether the server
is a replica, and its run.
"""

PRIMARY = ("primary", "read-write")
"""The values of target_session_attrs with which no connection leads to a replica."""

_SILENT = ("error", "fatal", "panic")
_REFUSED = {
    "client_encoding": "texts are always sent as UTF-8",
    "replication": "a connection for replication knows no commits",
}


def check_encoding(where: str, server: str) -> None:
    """Raise BackendRefused unless the database's encoding is UTF-8: only this one stores and orders every name."""
    if server != "UTF8":
        raise BackendRefused(
            f"the database {where} has the encoding {server}, which cannot store or sort all names; "
            "expected UTF8: create another with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and migrate it"
        )


def check_session(where: str, server: str, client: str, isolation: str, messages: str, *, pooled: bool) -> None:
    """Raise BackendRefused for a session in which a commit's effect or answer could differ from its statement."""
    check_encoding(where, server)
    if client != "UTF8":
        raise BackendRefused(
            f"{where} uses the client encoding {client}, not UTF8; configure the pooler to keep client_encoding"
        )
    if pooled and isolation != "read committed":
        raise BackendRefused(
            f"behind the pooler at {where} the default isolation is {isolation}, in which a commit that waited "
            "cannot read the newest rows; run: ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        )
    if pooled and messages in _SILENT:
        raise BackendRefused(
            f"behind the pooler at {where} client_min_messages is {messages}, which hides that a commit did not reach "
            "its replica; run: ALTER ROLE … SET client_min_messages = 'warning'"
        )


def options_of(url: Url) -> dict[str, str]:
    """Return libpq's options from the URL's query; with several servers, add that the primary is wanted.

    Options that the URL names before the query are left out.

    Raises InvalidArgument, without secrets in its message.
    """
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    options: dict[str, str] = {}
    given: dict[str, Any] = dict(url.query)
    parts = {"host": url.host, "port": url.port, "dbname": url.database, "user": url.username, "password": url.password}
    for key, value in given.items():
        if key not in known:
            raise InvalidArgument(f"the URL has the option {key!r}, which PostgreSQL's client does not know; remove it")
        if key in _REFUSED:
            raise InvalidArgument(f"the URL has the option {key!r}, but {_REFUSED[key]}; remove it")
        if not isinstance(value, str):
            raise InvalidArgument(f"the URL has the option {key!r} several times; write its values with commas between")
        if key in ("host", "hostaddr", "dbname") and ("@" in value or "://" in value):
            raise InvalidArgument(f"the URL's option {key!r} looks like another URL; write a plain name")
        if not parts.get(key):
            options[key] = value
    if leads_to_several(url):
        wanted = options.get("target_session_attrs", "any")
        if wanted not in ("any", *PRIMARY):
            raise InvalidArgument(
                f"the URL leads to several servers, and target_session_attrs={wanted} to a replica, whose state may be "
                "old; remove that option, and name the replicas in read_from="
            )
        options["target_session_attrs"] = PRIMARY[0] if wanted == "any" else wanted
    return options


def leads_to_several(url: Url) -> bool:
    """Whether connections may lead to different servers; the environment may add to the URL."""
    defaults = {one.keyword.decode(): (one.val or b"").decode() for one in psycopg.pq.Conninfo.get_defaults()}
    said = {name: str(url.query.get(name) or defaults.get(name)) for name in ("host", "hostaddr", "load_balance_hosts")}
    hosts = f"{url.host}{url.query.get('host')}" if url.host else said["host"]
    return "," in f"{hosts}{said['hostaddr']}" or said["load_balance_hosts"] == "random"
