"""Faults of leases in buckets, of their renewal, and of the bridge's sections."""

from __future__ import annotations

from typing import Final

from tests.faults.fault import Fault

__all__ = ["IN_LEASES"]

_LOST: Final = "tests/concurrency/test_timelines.py"

IN_LEASES = (
    Fault(
        "Fail-over: a token of a lease that it lost is given again",
        "metastore/backends/postgres/lease_sql.py",
        '_FIRST = f"({TIMELINE} - 1) * {PER_TIMELINE} + 1"',
        '_FIRST = "1"',
        _LOST,
    ),
    Fault(
        "Fail-over: a lease that it lost is renewed when its time comes, and not at once",
        "metastore/store/restarts.py",
        "            holds._look_again()  # noqa: SLF001  (no user calls it)\n",
        "            pass\n",
        _LOST,
    ),
    Fault(
        "Fail-over: a change that it lost is not missed before one that it kept",
        "metastore/feed/feed.py",
        "if seq <= collected or backend.unbroken(seq):",
        "if True:",
        _LOST,
    ),
    Fault(
        "Fail-over: a position of the new server is refused beside a gap",
        "metastore/feed/feed.py",
        'if position.startswith(f"{epoch}-"):',
        "if False:",
        _LOST,
    ),
    Fault(
        "Fail-over: a reader of the feed goes on where the server before ended",
        "metastore/feed/feed.py",
        "if backend.origin.run != origin.run:",
        "if False:",
        _LOST,
    ),
    Fault(
        "a lease that comes when its store was closed meanwhile is kept for its ttl",
        "metastore/leases/leases.py",
        "            if ours.closed:  # since the lease was asked for\n",
        "            if False:\n",
        "tests/concurrency/test_closing.py -k acquiring",
    ),
    Fault(
        "a lease whose store is closed during its release is kept for its ttl",
        "metastore/leases/lease.py",
        "with cleaning(now + _LAST_TRY), suppress(StoreClosed):",
        "with until(now + _LAST_TRY), suppress(StoreClosed):",
        "tests/concurrency/test_closing.py -k in_the_middle",
    ),
    Fault(
        "a release goes on until its lease is over, however long that is",
        "metastore/leases/lease.py",
        "min(max(self._left(), _LAST_TRY), self._deadline)",
        "max(self._left(), _LAST_TRY)",
        "tests/leases/test_holding.py -k keeps_to_the_deadline",
    ),
    Fault(
        "a break that is sent again does not wait for the replica",
        "metastore/backends/postgres/lease_sql.py",
        "(SELECT count(*) FILTER (WHERE ({CONFIRM}) IS NOT NULL) {_SENT_BEFORE})",
        "(SELECT count(*) {_SENT_BEFORE})",
        "tests/concurrency/test_unconfirmed.py -k repetition",
    ),
    Fault(
        "Bridge: what a section for reading writes itself counts as another's change",
        "metastore/bridge/watch.py",
        "return sum(one not in ours for one in touched)",
        "return len(touched)",
        "tests/bridge/test_bridged.py -k itself",
    ),
    Fault(
        "each view of a forked child is another holder, which waits for the others",
        "metastore/leases/leases.py",
        "self._by_process.setdefault(process, _Ours(self._clock))",
        "_Ours(self._clock)",
        "tests/leases/test_fork.py -k holds_nothing",
    ),
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
    Fault(
        "the store knows a lease in a bucket by the URL",
        "metastore/leases/objects/notes.py",
        "{self.place(name, ends)}:",
        "{self._url}/",
        "tests/leases/test_places.py -k one_name",
    ),
    Fault(
        "a lock file of a lost place is fenced under the new id",
        "metastore/leases/objects/book.py",
        "        if file.place is not None:\n            raise another_place",
        "        if file.place == place:\n            raise another_place",
        "tests/leases/test_places.py -k lost",
    ),
    Fault(
        "an older holder of a lock file is not fenced",
        "metastore/leases/objects/book.py",
        "                return Done(_Unfenced(file.nonce))",
        "                pass",
        "tests/leases/test_places.py -k older",
    ),
    Fault(
        "whoever was broken before the store knew gets the lease",
        "metastore/leases/objects/book.py",
        "holding.id != mark:\n                return Done(None)\n            return Done(file) if file.token > noted",
        "holding.id == '':\n                return Done(None)\n            return Done(file) if file.token > noted",
        "tests/leases/test_object_fencing.py -k before_the_store_knew",
    ),
    Fault(
        "a release that failed half way is over",
        "metastore/leases/objects/book.py",
        " or self._was_released(file, following))",
        ")",
        "tests/leases/test_object_fencing.py -k half_way",
    ),
    Fault(
        "a place that lost its id gets a new one",
        "metastore/leases/objects/place.py",
        "noted or self._clock.operation_id().hex",
        "self._clock.operation_id().hex",
        "tests/leases/test_places.py -k lost_everything",
    ),
    Fault(
        "two acquisitions of one process are one to the store",
        "metastore/leases/objects/notes.py",
        "{held.incarnation} {held.id}",
        "{held.incarnation}",
        "tests/leases/test_object_fencing.py -k was_removed",
    ),
    Fault(
        "those who do not wait overtake those who do",
        "metastore/leases/objects/book.py",
        "want.ticket is None or waiter.ticket < want.ticket",
        "want.ticket is not None and waiter.ticket < want.ticket",
        "tests/leases/test_object_storage.py -k 'starves or ends_with_its_call'",
    ),
    Fault(
        "a place in the queue outlasts its call",
        "metastore/leases/objects/queue.py",
        "min(ALIVE, self._ends - self._clock.monotonic())",
        "ALIVE",
        "tests/leases/test_object_storage.py -k ends_with_its_call",
    ),
    Fault(
        "a create of nothing does not look at its lease",
        "metastore/managers/bulk.py",
        "            writer.write_nothing()\n",
        "            pass\n",
        "tests/leases/test_long_works.py -k 'create and none and sqlite'",
    ),
    Fault(
        "the steps of a drop forget their lease",
        "metastore/managers/drops/pending.py",
        "perform(self._session, request, call)",
        "perform(self._session, request, Call())",
        "tests/leases/test_long_works.py -k sqlite",
    ),
    Fault(
        "an import forgets its lease",
        "metastore/transfer/importer.py",
        "replay=lambda _: None, arguments=tuple)\n        perform(self._session, request, self._call)",
        "replay=lambda _: None, arguments=tuple)\n        perform(self._session, request, Call())",
        "tests/leases/test_long_works.py -k 'import and sqlite'",
    ),
    Fault(
        "a damaged lock file stops a list",
        "metastore/leases/objects/cells.py",
        "if damaged is None or getattr",
        "if damaged is not None or getattr",
        "tests/leases/test_object_storage.py -k stops_nothing",
    ),
)
