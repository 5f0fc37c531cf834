"""Faults of leases in buckets, of their renewal, and of the bridge's sections."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_LEASES"]

IN_LEASES = (
    Fault(
        "a section above does not wait for the token of one below",
        "metastore/bridge/exclusive.py",
        "        except LeaseHeld:\n            return False\n",
        "        except LeaseHeld:\n            return True\n",
        "tests/bridge/test_late.py",
    ),
    Fault(
        "a block inside shortens the lease of the one outside",
        "metastore/leases/lease.py",
        "self._ttl = max(self._ttl, ttl)",
        "self._ttl = ttl",
        "tests/leases/test_blocks.py",
    ),
    Fault(
        "a lease is renewed for the thread of its newest block only",
        "metastore/leases/heartbeat.py",
        "any(keeper.is_alive() for keeper in self._keepers)",
        "any(keeper.is_alive() for keeper in self._keepers[-1:])",
        "tests/leases/test_blocks.py",
    ),
    Fault(
        "a heartbeat that ended is never started again",
        "metastore/leases/heartbeat.py",
        "            if not self._beats:\n",
        "            if self.beating is None:\n",
        "tests/leases/test_blocks.py",
    ),
)
