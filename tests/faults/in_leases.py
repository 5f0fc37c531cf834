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
)
