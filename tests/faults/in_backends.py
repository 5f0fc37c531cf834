"""Faults of the statements and of what applies a commit: PostgreSQL and SQLite."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_BACKENDS"]

_PG, _LITE, _SQL = "metastore/backends/postgres", "metastore/backends/sqlite", "metastore/backends/sql"
_COMMIT = "tests/contract/test_commit_contract.py tests/contract/test_writes_contract.py"
_MARKS = "tests/contract/test_marks_contract.py"
_TICKETS = "tests/contract/test_tickets_contract.py"
_INTENTS = "tests/contract/test_intents_contract.py"

_VERSIONS = (
    Fault(
        "SQLite: an update without its version",
        _LITE,
        "if row is None or row[0] != write.version:",
        "if row is None:",
        f"{_COMMIT} -k sqlite",
    ),
    Fault(
        "PostgreSQL: an alter without its version",
        _PG,
        "WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {ALL_GUARDED}{lease.holds}",
        "WHERE id = %(id)s::bigint AND {ALL_GUARDED}{lease.holds}",
        "tests/contract/test_alter_contract.py tests/contract/test_commit_contract.py -k postgres",
    ),
    Fault(
        "PostgreSQL: several updates without their versions",
        _PG,
        '_as_seen("entity", "u_ids", "version", "u_versions")',
        '_as_seen("entity", "u_ids", "id", "u_ids")',
        f"{_COMMIT} tests/contract/test_transactions_contract.py -k postgres",
    ),
    Fault(
        "PostgreSQL: intents are applied to any version",
        _PG,
        "WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {ALL_GUARDED}{{free}}",
        "WHERE id = %(id)s::bigint AND {ALL_GUARDED}{{free}}",
        f"{_INTENTS} -k postgres",
    ),
    Fault(
        "SQLite: intents are applied to any version",
        _LITE,
        "if row is None or row[0] != help_.version:",
        "if row is None:",
        f"{_INTENTS} -k sqlite",
    ),
    Fault(
        "SQLite: a row that was read may have changed",
        _LITE,
        "if row is None or row[0] != read.version:",
        "if row is None:",
        f"{_COMMIT} tests/contract/test_transactions_contract.py -k sqlite",
    ),
    Fault(
        "PostgreSQL: a row that was read may have changed",
        _PG,
        '_as_seen("entity", "read_ids", "version", "read_versions")',
        '_as_seen("entity", "read_ids", "id", "read_ids")',
        f"{_COMMIT} tests/contract/test_transactions_contract.py -k postgres",
    ),
    Fault(
        "SQLite: an owned row is known by its name alone",
        _LITE,
        "if row is not None and write.id not in (0, row[0]):",
        "if False:",
        "tests/statements/test_statements.py tests/contract -k 'sqlite and (owned or own_guards or partition)'",
    ),
)

_GUARDS = (
    Fault(
        "SQLite: a guard without its scope version",
        _LITE,
        "if row is None or row[0] != guard.scope_version:",
        "if row is None:",
        f"{_COMMIT} -k sqlite",
    ),
    Fault(
        "PostgreSQL: a guard without its scope version",
        _PG,
        "    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]\n",
        "",
        f"{_COMMIT} -k postgres",
    ),
    Fault(
        "PostgreSQL: a guard without a row lock",
        _PG,
        "ORDER BY id FOR KEY SHARE)",
        "ORDER BY id)",
        "tests/concurrency/test_field_cases_cascade.py -k 'postgres and (waited or case_3_cascade)'",
    ),
    Fault(
        "SQLite: what is dropped if it is empty may have children",
        _LITE,
        "if write.empty:",
        "if False:",
        "tests/contract/test_moving_contract.py -k sqlite",
    ),
    Fault(
        "PostgreSQL: what is dropped if it is empty may have children",
        _PG,
        "AS l(id) WHERE l.id = g.id)) THEN 0 ELSE 1 END)",
        "AS l(id) WHERE l.id = g.id)) THEN 1 ELSE 1 END)",
        "tests/contract/test_moving_contract.py -k postgres",
    ),
    Fault(
        "SQLite: any that was dropped is restored",
        _LITE,
        "return newest == read.id",
        "return True",
        "tests/concurrency/test_restores.py tests/statements/test_statements.py -k 'restore and not postgres'",
    ),
    Fault(
        "PostgreSQL: any that was dropped is restored",
        _PG,
        "%(id)s::bigint IS DISTINCT FROM (SELECT id FROM guard",
        "false AND %(id)s::bigint IS DISTINCT FROM (SELECT id FROM guard",
        "tests/concurrency/test_restores.py -k postgres",
    ),
    Fault(
        "PostgreSQL: a listing that lost a row is as it was",
        _PG,
        "(TABLE there EXCEPT TABLE seen) UNION ALL (TABLE seen EXCEPT TABLE there))",
        "(TABLE there EXCEPT TABLE seen))",
        "tests/contract/test_commit_contract.py tests/contract/test_transactions_contract.py -k postgres",
    ),
)

_OF_MARKS = (
    Fault(
        "SQLite: nobody steps aside for a mark",
        _LITE,
        "if row[1] is not None and row[1] != str(operation_id):",
        "if False:",
        f"{_MARKS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: nobody steps aside for a mark",
        _PG,
        "    AND (mark IS NULL OR mark = %(operation_id)s::uuid)\n  ORDER BY id FOR KEY SHARE",
        "  ORDER BY id FOR KEY SHARE",
        f"{_MARKS} -k postgres",
    ),
    Fault(
        "SQLite: a mark is cleared before its time",
        _LITE,
        "(marked_until < :now OR",
        "(true OR",
        f"{_MARKS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: a mark is cleared before its time",
        _PG,
        'LAPSED = f"(marked_until < {NOW} OR',
        'LAPSED = f"(true OR',
        f"{_MARKS} -k postgres",
    ),
    Fault(
        "SQLite: clearing a mark leaves the scope version as it is",
        _LITE,
        "UPDATE guard SET scope_version = scope_version + 1, {CLEARED}",
        "UPDATE guard SET {CLEARED}",
        f"{_MARKS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: clearing a mark leaves the scope version as it is",
        _PG,
        "UPDATE guard SET scope_version = scope_version + 1, {_CLEARED}",
        "UPDATE guard SET {_CLEARED}",
        f"{_MARKS} -k postgres",
    ),
    Fault(
        "SQLite: the others get no turn after a mark",
        _LITE,
        "or (other is None and others_turn):",
        "or False:",
        f"{_MARKS} -k sqlite",
    ),
)

_OF_INTENTS = (
    Fault(
        "SQLite: a commit overlooks what is pending",
        _LITE,
        "if not (commit.overlook or carried) and run(pending",
        "if False and run(pending",
        f"{_INTENTS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: an alter overlooks what is pending",
        _PG,
        '\n    AND NOT {pending_on("%(id)s::bigint")}',
        "",
        f"{_INTENTS} -k postgres",
    ),
    Fault(
        "PostgreSQL: an alter overlooks tickets",
        _PG,
        ' AND NOT {in_line("%(id)s::bigint")}\n  RETURNING',
        "\n  RETURNING",
        f"{_TICKETS} -k postgres",
    ),
    Fault(
        "PostgreSQL: several writes overlook tickets",
        _PG,
        "turn=_NOT_QUEUED if shape.updates and shape.queues else",
        "turn=_NOT_QUEUED if False else",
        f"{_TICKETS} -k postgres",
    ),
    Fault(
        "SQLite: a commit overlooks tickets",
        _LITE,
        "check_line(connection, write.id, commit.ticket, now)",
        "pass",
        f"{_TICKETS} -k sqlite",
    ),
    Fault(
        "SQLite: one that fails takes its group along",
        _LITE,
        'connection.execute("ROLLBACK TO one")',
        'connection.execute("ROLLBACK")',
        "tests/concurrency/test_group_commit.py",
    ),
    Fault(
        "SQLite: what is not pending is withdrawn",
        _LITE,
        'WHERE operation_id = :operation_id AND ordinal = 0 AND action = \'{PENDING}\' RETURNING 1"""\nLAPSED',
        'WHERE operation_id = :operation_id AND ordinal = 0 RETURNING 1"""\nLAPSED',
        f"{_INTENTS} -k sqlite",
    ),
    Fault(
        "SQLite: what is not pending is applied",
        _LITE,
        'raise PreconditionFailed("pending", help_.id)',
        "pass",
        f"{_INTENTS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: what is not pending is applied",
        _PG,
        "WHERE (SELECT count(*) FROM mine) = cardinality(%(r_ids)s::uuid[]) AND {DURABLE})",
        "WHERE {DURABLE})",
        f"{_INTENTS} -k postgres",
    ),
    Fault(
        "SQLite: an exclusive operation leaves intents pending",
        _LITE,
        'WHERE entity_id = ? AND action = \'pending\'"""\n            self._run(sql, (write.id,))',
        'WHERE entity_id = ? AND action = \'pending\'"""',
        f"{_INTENTS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: an exclusive operation leaves intents pending",
        _PG,
        "FROM altered WHERE o.entity_id = {entity_id} AND o.action = 'pending'),",
        "FROM altered WHERE false AND o.entity_id = {entity_id} AND o.action = 'pending'),",
        f"{_INTENTS} tests/progress/test_moved.py -k postgres",
    ),
)

_CLAIMS = "tests/contract/test_claims_contract.py"
_TOMBSTONES = (
    Fault(
        "PostgreSQL: a statement is sent although no time is left",
        _PG,
        'raise NothingSent("the time was over before anything was sent")',
        "pass",
        "tests/concurrency/test_wire.py",
    ),
    Fault(
        "SQLite: what was applied may be claimed",
        _LITE,
        'RETURNING attempt"""\n    rows = connection.execute(sql, (now, key)).fetchall()\n'
        "    return rows[0][0] if rows else None",
        'RETURNING attempt"""\n    rows = connection.execute(sql, (now, key)).fetchall()\n'
        "    return rows[0][0] if rows else 1",
        f"{_CLAIMS} tests/contract/test_lost_answers_contract.py -k sqlite",
    ),
    Fault("SQLite: any claim holds", _LITE, 'raise PreconditionFailed("claim")', "pass", f"{_CLAIMS} -k sqlite"),
    Fault(
        "SQLite: a claim that writes nothing is given up",
        _LITE,
        "elif commit.claim:",
        "elif False:",
        f"{_CLAIMS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: a claim that writes nothing is given up",
        _PG,
        'kept=f",\\n{_KEPT}" if shape.skip_existing and shape.claimed else "",',
        'kept="",',
        f"{_CLAIMS} tests/contract/test_writes_contract.py -k postgres",
    ),
    Fault(
        "PostgreSQL: what was applied may be claimed",
        _PG,
        "AND ordinal = 0 AND action IN ({_CLAIMABLE}) AND {DURABLE}",
        "AND ordinal = 0 AND {DURABLE}",
        f"{_CLAIMS} tests/contract/test_lost_answers_contract.py -k postgres",
    ),
    Fault(
        "SQLite: an id that gc has forgotten is taken",
        _LITE,
        'raise PreconditionFailed("stale_id")',
        "pass",
        "tests/contract/test_keys_contract.py tests/progress/test_replays.py -k 'sqlite and (gc or future or ahead)'",
    ),
    Fault(
        "PostgreSQL: a tombstone where gc may have deleted the row",
        _PG,
        "WHERE forgotten <= {NOW} - %(life)s::bigint FOR SHARE)",
        "FOR SHARE)",
        "tests/contract/test_short_retention_contract.py -k postgres",
    ),
)

_LEASES = "tests/leases/test_contract.py tests/leases/test_with_everything.py"
_OF_LEASES = (
    Fault(
        "SQLite: a commit under a lease that is lost",
        _LITE,
        'raise PreconditionFailed("lease")',
        "pass",
        "tests/leases/test_with_everything.py -k sqlite",
    ),
    Fault(
        "PostgreSQL: a commit does not hold its lease",
        _PG,
        "ORDER BY name FOR KEY SHARE)",
        "ORDER BY name)",
        "tests/leases/test_row_locks.py",
    ),
    Fault(
        "SQLite: a lease that somebody holds is taken",
        _LITE,
        "if row.owner is not None and (row.expires_at or 0) > now), None)",
        "if False), None)",
        f"{_LEASES} -k 'sqlite and (41 or 47 or all_or_none)'",
    ),
    Fault(
        "SQLite: the token of a lease does not grow when it is given back",
        _LITE,
        "UPDATE lease SET token = token + 1, owner = NULL",
        "UPDATE lease SET owner = NULL",
        f"{_LEASES} tests/verify/test_leases.py -k sqlite",
    ),
    Fault(
        "SQLite: a renewal after the loss is a success",
        _LITE,
        "return now + ttl if all(done) else None",
        "return now + ttl",
        f"{_LEASES} -k 'sqlite and (43 or 44)'",
    ),
)

_COLLECTED = "tests/contract/test_gc_contract.py"
_FEED = (
    Fault(
        "PostgreSQL: the feed passes over a commit in flight",
        _PG,
        "if oldest <= transaction or self.pool.opened is not known.server:",
        "if False:",
        "tests/concurrency/test_feed.py",
    ),
    Fault(
        "gc deletes the newest step",
        _SQL,
        "\n    AND s.seq < (SELECT max(seq) FROM operation)",
        "",
        f"{_COLLECTED} tests/concurrency/test_feed.py -k sqlite",
    ),
    Fault(
        "gc keeps no versions",
        _SQL,
        "s.version <= s.current - :keep)",
        "s.version <= s.current)",
        f"{_COLLECTED} -k sqlite",
    ),
    Fault(
        "SQLite: gc does not note what it took from the feed",
        _LITE,
        "connection.execute(numbers, (highest, since))",
        "connection.execute(numbers, (0, since))",
        f"{_COLLECTED} -k sqlite",
    ),
)

IN_BACKENDS: tuple[Fault, ...] = (
    *_VERSIONS,
    *_GUARDS,
    *_OF_MARKS,
    *_OF_INTENTS,
    *_TOMBSTONES,
    *_OF_LEASES,
    *_FEED,
)
