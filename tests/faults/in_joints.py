"""Faults where features meet, planted once more: a run of all features, or a soak test, finds them unnamed."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import Fault
from tests.faults.in_batches import IN_BATCHES
from tests.faults.in_caches import IN_CACHES
from tests.faults.in_connections import IN_CONNECTIONS

__all__ = ["IN_JOINTS"]

_KNOWN = {fault.name: fault for fault in (*IN_BATCHES, *IN_CACHES, *IN_CONNECTIONS)}
_FINDS = {
    "Batch of reads: a fresh scope version vouches for an outdated one": "swaps-postgres",
    "Transactions: a run that lost notes no time": "runs-postgres",
    "Group commit: a thread whose change is made asks again and again": "bulk-sqlite",
    "Cache: a forked worker that ends leaves its membership behind": "forks-postgres",
    "PostgreSQL: a stopped wait for a replica counts as a confirmation": "replica-postgres",
    "Cache: positions are noted before what they change is evicted": "notebooks-postgres",
    "Deadlines: an interrupt leaves a deadline in the thread's context": "notebooks-postgres",
    "PostgreSQL: a batch is executed while it is sent": "silence-postgres",
    "PostgreSQL: a batch that fails forgets what it prepared": "failing-postgres",
}
"""Which plan and database find a fault within the seconds of the test. Others need minutes: ``make joints``."""


def _forgets(name: str, tests: str) -> Fault:
    return Fault(
        f"{name}: a batch that fails forgets its prepared statements, and leaves them in the server",
        "metastore/backends/postgres/wire.py",
        "        if len(done) < len(results) and not committed:\n",
        "        if len(done) < len(results) and not committed:\n            self._names.clear()\n",
        tests,
    )


IN_JOINTS: tuple[Fault, ...] = (
    *[
        replace(_KNOWN[name], name=f"Joints, {plan}: {name}", tests=f"tests/joints/test_plans.py -m long -k '[{plan}]'")
        for name, plan in _FINDS.items()
    ],
    Fault(
        "Joints, members-postgres: a member is given up after the least ttl of all",
        "metastore/backends/postgres/silence.py",
        "proceed = ttl / 1e6 * (1 + 2 * DRIFT)",
        "proceed = min(row[3] for row in members) / 1e6 * (1 + 2 * DRIFT)",
        "tests/joints/test_plans.py -m long -k '[members-postgres]'",
    ),
    _forgets("Joints, failing-postgres", "tests/joints/test_plans.py -m long -k '[failing-postgres]'"),
    _forgets("Soak", "tests/soak/test_soak.py -m long -k grow"),
)
