"""A thread has a path for itself only while it holds the path's lease."""

from __future__ import annotations

import metastore as ms
from metastore.bridge.exclusive import Exclusive
from metastore.clock import SYSTEM


def test_what_an_interrupt_left_in_the_context_is_not_held() -> None:
    """Without the lease another process may be in the section: its changes must be looked for."""
    with ms.open("memory://") as store:
        exclusive = Exclusive(store.leases, SYSTEM, 10.0)
        with exclusive.section(("m", "c"), 5.0) as lease:
            assert exclusive.holds(("m", "c", "s"))
            assert not exclusive.holds(("m",))
            lease.release()  # as the end of a section does, and then an interrupt comes
            assert not exclusive.holds(("m", "c", "s"))
