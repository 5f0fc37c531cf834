"""Which tests are made for a file of the kernel: they run first, in half a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["near"]


def near(path: str) -> str:
    """Return the tests that are made for a file: those of the longest path in the table that it begins with."""
    return _NEAR[max((one for one in _NEAR if path.startswith(one)), key=len)]


def _contract(*names: str, on: str = "") -> str:
    files = " ".join(f"tests/contract/test_{name}_contract.py" for name in names)
    return f"{files} -k {on}" if on else files


_PG, _LITE, _SQL, _MEMORY = (f"metastore/backends/{name}" for name in ("postgres", "sqlite", "sql", "memory"))
_NO_SERVER = "'not postgres'"
_COMMIT = ("commit", "writes", "alter", "exactly_once", "moving", "transactions")
_READS = ("pages", "managers", "search", "find", "one_instant", "remembered_parents")
_HELP = ("intents", "marks", "claims", "left_behind", "tickets", "lost_answers")
_CHECKS = ("transactions", "validation", "own_guards", "freeze", "one_instant", "restore")
_LEASES = "tests/leases/test_contract.py tests/contract/test_lease_tokens_contract.py tests/leases/test_left_behind.py"
_MEMBERS = (
    "tests/cache/test_announcing.py tests/cache/test_lease.py tests/cache/test_lease_rules.py tests/cache/test_fill.py"
    " tests/cache/test_lease_times.py"
)
_CONNECTIONS = (
    "tests/concurrency/test_pool.py tests/bad_input/test_sessions.py tests/unit/test_postgres_checks.py"
    " tests/concurrency/test_forks.py"
)

_NEAR: Final[Mapping[str, str]] = {
    _PG: _contract(*_COMMIT, on="postgres"),
    f"{_PG}/announcing.py": _MEMBERS,
    f"{_PG}/checks.py": _contract(*_CHECKS, on="postgres"),
    f"{_PG}/con": _CONNECTIONS,
    f"{_PG}/general_commit": _contract(*_COMMIT, "validation", "relations", "own_guards", "freeze", on="postgres"),
    f"{_PG}/hints.py": "tests/past/test_hints.py",
    f"{_PG}/home.py": "tests/migration/test_put_back.py tests/migration/test_roles.py",
    f"{_PG}/intents.py": _contract(*_HELP, on="postgres"),
    f"{_PG}/lease": f"{_LEASES} tests/leases/test_waiting.py -k postgres",
    f"{_PG}/members.py": _MEMBERS,
    f"{_PG}/read": _contract(*_READS, *_CHECKS, on="postgres"),
    f"{_PG}/relations.py": _contract("relations", "relation_pages", "gc", on="postgres"),
    f"{_PG}/restore.py": "tests/transfer/test_round_trip.py tests/transfer/test_into.py -k postgres",
    f"{_PG}/secret_keys.py": "tests/secrets tests/contract/test_secrets_contract.py -k postgres",
    f"{_PG}/sending.py": "tests/combine/test_batches.py tests/concurrency/test_wire.py",
    f"{_PG}/settings.py": _CONNECTIONS,
    f"{_PG}/tickets.py": _contract("tickets", "freeze", on="postgres"),
    f"{_PG}/together": "tests/combine/test_batches.py tests/combine/test_pitfalls.py",
    f"{_PG}/wire.py": "tests/concurrency/test_wire.py tests/combine/test_batches.py",
    _LITE: _contract(*_COMMIT, on="sqlite"),
    f"{_LITE}/backend.py": _contract(*_COMMIT, *_HELP, "gc", on="sqlite"),
    f"{_LITE}/checks.py": _contract(*_CHECKS, *_COMMIT, on="sqlite"),
    f"{_LITE}/connect.py": "tests/bad_input/test_files.py tests/unit/test_sqlite_version.py"
    " tests/concurrency/test_forks.py tests/concurrency/test_crash.py -k 'not postgres'",
    f"{_LITE}/forks.py": "tests/concurrency/test_forks.py -k 'not postgres'",
    f"{_LITE}/group.py": "tests/concurrency/test_group_commit.py tests/concurrency/test_deadlines.py -k 'not postgres'",
    f"{_LITE}/intents.py": _contract(*_HELP, on="sqlite"),
    f"{_LITE}/leases.py": f"{_LEASES} tests/leases/test_waiting.py -k sqlite",
    f"{_LITE}/read": _contract(*_READS, *_CHECKS, on="sqlite"),
    f"{_LITE}/readers.py": "tests/past/test_consumers.py tests/past/test_retention.py -k sqlite",
    f"{_LITE}/relations.py": _contract("relations", "relation_pages", "validation", on="sqlite"),
    f"{_LITE}/restore.py": "tests/transfer/test_round_trip.py tests/transfer/test_into.py -k sqlite",
    f"{_LITE}/tickets.py": _contract("tickets", "freeze", on="sqlite"),
    _SQL: _contract(*_READS, *_CHECKS, "managers", on="sqlite"),
    f"{_SQL}/gc.py": f"{_contract('gc', 'left_behind')} tests/past/test_retention.py tests/past/test_promises.py"
    " tests/past/test_as_of.py",
    f"{_SQL}/past.py": "tests/past -k sqlite",
    f"{_SQL}/relations.py": _contract("relations", "relation_pages", "governance_kinds", on="sqlite"),
    f"{_SQL}/rights.py": _contract("authorized_trips", "as_user", on="sqlite"),
    f"{_SQL}/snapshot.py": "tests/transfer/test_round_trip.py tests/verify/test_verify.py -k sqlite",
    f"{_SQL}/stats.py": "tests/unit/test_stats.py tests/cli/test_stats.py",
    f"{_SQL}/tables.py": "tests/migration/test_schema.py",
    _MEMORY: _contract(*_COMMIT, *_READS, *_CHECKS, *_HELP, on="memory"),
    f"{_MEMORY}/gc.py": f"{_contract('gc', 'left_behind')} tests/past/test_retention.py -k memory",
    f"{_MEMORY}/leases.py": f"{_LEASES} -k memory",
    f"{_MEMORY}/past.py": "tests/past -k memory",
    f"{_MEMORY}/relations.py": _contract("relations", "relation_pages", on="memory"),
    f"{_MEMORY}/restore.py": "tests/transfer/test_round_trip.py tests/transfer/test_into.py -k memory",
    "metastore/backends/precondition.py": _contract(*_COMMIT, on="sqlite"),
    "metastore/port": f"{_contract(*_COMMIT, *_HELP)} tests/unit -k {_NO_SERVER}",
    "metastore/port/acknowledgement.py": "tests/concurrency/test_unconfirmed.py tests/concurrency/test_wire.py",
    "metastore/port/batches.py": "tests/combine/test_batches.py",
    "metastore/port/members.py": f"tests/cache/test_announcing.py {_MEMBERS}",
    "metastore/gc.py": f"{_contract('gc', 'left_behind')} tests/past/test_retention.py -k {_NO_SERVER}",
    "metastore/operation": f"tests/operation {_contract(*_HELP, *_COMMIT, on=_NO_SERVER)}",
    "metastore/operation/helping.py": f"tests/operation tests/progress/test_moved.py"
    f" {_contract(*_HELP, on=_NO_SERVER)}",
    "metastore/operation/authorized.py": _contract("authorized_trips", "as_user", "revoked", on=_NO_SERVER),
    "metastore/operation/dropping.py": _contract("drops", "told_drops", on=_NO_SERVER),
    "metastore/operation/kept_result.py": _contract("exactly_once", "models", "keys", on=_NO_SERVER),
    "metastore/operation/keys.py": _contract("keys", "exactly_once", on=_NO_SERVER),
    "metastore/operation/outcome.py": _contract("exactly_once", "lost_answers", on=_NO_SERVER),
    "metastore/operation/request.py": f"tests/operation {_contract('remembered_parents', 'in_hand', 'trust')}"
    f" -k {_NO_SERVER}",
    "metastore/operation/seals.py": f"tests/secrets {_contract('secrets', 'sealed', on=_NO_SERVER)}",
    "metastore/operation/tickets.py": _contract("tickets", "freeze", "transactions", on=_NO_SERVER),
    "metastore/combine": "tests/combine/test_lane.py tests/combine/test_batches.py tests/combine/test_pitfalls.py"
    " tests/combine/test_work.py tests/combine/test_bound.py tests/combine/test_ancestors.py"
    " tests/operation/test_cost.py",
    "metastore/transaction": f"{_contract(*_CHECKS, 'tickets', 'bind')} tests/unit/test_read_set.py -k {_NO_SERVER}",
    "metastore/transaction/freeze.py": _contract("freeze", "freezes_meet", on=_NO_SERVER),
    "metastore/transaction/line.py": f"{_contract('tickets', 'transactions')} tests/operation -k {_NO_SERVER}",
    "metastore/transaction/overlay.py": _contract("transactions", "validation", "relations", "models", on=_NO_SERVER),
    "metastore/transaction/owned.py": _contract("transactions", "validation", "models", "statistics", on=_NO_SERVER),
    "metastore/transaction/relations.py": _contract("relations", "transactions", "validation", on=_NO_SERVER),
    "metastore/managers/attempts": _contract(*_COMMIT, "managers", "own_guards", "in_hand", "restore", on=_NO_SERVER),
    "metastore/managers/mutation.py": _contract(*_COMMIT, "managers", on=_NO_SERVER),
    "metastore/managers/target.py": _contract("managers", "in_hand", "remembered_parents", on=_NO_SERVER),
    "retry": "tests/retry tests/operation",
    "metastore/cache": "tests/cache/test_bounded.py tests/cache/test_positions.py tests/cache/test_verdict.py"
    " tests/cache/test_behaviour.py tests/cache/test_rules.py",
    **{
        f"metastore/cache/{name}.py": f"{_MEMBERS} tests/cache/test_lease_ends.py tests/cache/test_lease_contact.py"
        for name in ("entries", "entry", "fence", "fill", "leased", "membership")
    },
    "metastore/cache/store.py": "tests/cache/test_verdict.py tests/cache/test_lease.py tests/cli/test_cache.py",
    "metastore/leases": f"{_LEASES} tests/leases/test_holding.py tests/leases/test_waiting.py -k 'not s3 and not hudi'",
    "metastore/leases/staging.py": "tests/leases/test_left_behind.py tests/bad_input/test_leases.py",
    "metastore/leases/objects": "tests/leases/test_object_model.py tests/leases/test_object_faults.py"
    " tests/leases/test_object_storage.py tests/leases/test_contract.py -k 'object'",
    "metastore/feed": "tests/past/test_consumers.py tests/past/test_consumers_fail.py tests/past/test_as_of.py"
    f" {_contract('past', 'gc', 'as_user', 'user_calls', on=_NO_SERVER)}",
    "metastore/feed/follow.py": f"tests/past/test_consumers.py {_contract('drops', 'scope', on=_NO_SERVER)}",
    "metastore/feed/page.py": _contract("scope", "pages", on=_NO_SERVER),
    "metastore/feed/scope.py": _contract("scope", "pages", on=_NO_SERVER),
    "metastore/feed/position.py": "tests/past/test_positions.py tests/past/test_as_of.py -k 'not postgres'",
    "metastore/past": f"tests/past -k {_NO_SERVER}",
}
