"""Every wrong answer at every request of the protocol (field cases 42, 43, 50), in front of a real S3 server.

A wrong answer is a status (403, 404, 409, 412, 429, 500, 503), an empty 200 or a cut connection, with the request
applied or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import metastore as ms
from metastore.deadlines import until
from metastore.leases.book import Want
from metastore.leases.leases import Leases
from tests.leases.worlds import Time, s3_options
from tests.long import long_unless
from tests.servers.http_faults import Fault, HttpFaults
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.one_in(3)

TTL, LONG = 30.0, 60.0
FAULTS = [Fault(status, applied) for status in (403, 404, 409, 412, 429, 500, 503, None) for applied in (False, True)]
FAULTS += [Fault(200, applied, body=b"") for applied in (False, True)]
FEW = [Fault(409), Fault(412), Fault(429), Fault(500, applied=True), Fault(None), Fault(None, applied=True)]
SHORT = 3.0


@dataclass
class Setting:
    """``mine`` goes through the proxy, ``theirs`` does not."""

    proxy: HttpFaults
    time: Time
    mine: Leases
    theirs: Leases


@pytest.fixture(scope="module")
def proxy(locks_server: S3Server) -> Iterator[HttpFaults]:
    with HttpFaults(locks_server.port) as between:
        yield between


@pytest.fixture
def fresh(proxy: HttpFaults, locks_server: S3Server, bucket: str) -> Iterator[Callable[[], Setting]]:
    """Make settings that have nothing in common."""
    count = iter(range(10_000))

    def make() -> Setting:
        proxy.heal()
        time, url = Time(), f"s3://{bucket}/{next(count)}"
        mine = ms.ObjectStoreLeases(url, clock=time, **s3_options(proxy.url))
        theirs = ms.ObjectStoreLeases(url, clock=time, **s3_options(locks_server.url))
        return Setting(proxy, time, mine, theirs)

    yield make
    proxy.heal()


def mine(s: Setting) -> ms.Lease:
    return s.mine.acquire("job", owner="me", ttl=TTL)


def theirs(s: Setting) -> ms.Lease:
    return s.theirs.acquire("job", owner="they", ttl=TTL)


def expired(s: Setting) -> None:
    theirs(s)
    s.time.go(LONG)


def held_and_waited_for(s: Setting) -> ms.Lease:
    lease = mine(s)
    s.theirs._book.queue(Want(("job",), "waiter", "waiter", TTL)).__enter__()
    return lease


def looked_at(s: Setting) -> None:
    theirs(s).release()


def mine_in_the_end(s: Setting) -> ms.Lease:
    return s.mine.acquire("job", owner="me", ttl=TTL, timeout=45.0)


STEPS: dict[str, tuple[Callable[[Setting], Any], Callable[[Setting, Any], object]]] = {
    "create": (lambda s: None, lambda s, _: mine(s)),
    "replace": (looked_at, lambda s, _: mine(s)),
    "take over": (expired, lambda s, _: mine(s)),
    "acquire again": (lambda s: mine(s).release(), lambda s, _: mine(s)),
    "renew": (mine, lambda s, lease: lease.renew()),
    "renew, while somebody waits": (held_and_waited_for, lambda s, lease: lease.renew()),
    "release": (mine, lambda s, lease: lease.release()),
    "release, while somebody waits": (held_and_waited_for, lambda s, lease: lease.release()),
    "break": (theirs, lambda s, _: s.mine.break_("job")),
    "break mine": (mine, lambda s, _: s.mine.break_("job")),
    "wait": (lambda s: s.theirs.acquire("job", owner="they", ttl=1.5), lambda s, _: mine_in_the_end(s)),
}
"""By name: what comes before, through a healthy proxy, and the operation."""
SOME = ("create", "take over", "renew, while somebody waits", "release, while somebody waits")
"""Those that each run tries with every fault: together they send each of the requests."""
REQUESTS = {
    "create": ["GET", "GET", "PUT"],  # the file, the queue
    "replace": ["GET", "GET", "PUT"],
    "take over": ["GET", "GET", "PUT"],
    "acquire again": ["GET", "PUT"],
    "renew": ["PUT"],
    "renew, while somebody waits": ["PUT"],
    "release": ["PUT"],
    "release, while somebody waits": ["PUT"],
    "break": ["GET", "PUT"],
    "break mine": ["GET", "PUT"],
}


def run(s: Setting, step: str, faults: Callable[[], None]) -> object:
    before, operation = STEPS[step]
    state = before(s)
    s.proxy.seen.clear()
    faults()
    return operation(s, state)


@pytest.mark.parametrize("step", REQUESTS)
def test_requests_of_each_step(fresh: Callable[[], Setting], step: str) -> None:
    """What an operation costs; and what the next test goes through."""
    s = fresh()
    run(s, step, lambda: None)
    assert [method for method, *_ in s.proxy.seen] == REQUESTS[step]


def check(s: Setting, step: str, result: object) -> None:
    """Nobody believes what is not so; tokens grow by one; nothing is left dangling."""
    s.proxy.heal()
    tokens = [event.token for event in s.theirs.audit("job")]
    assert tokens == [*range(1, len(tokens) + 1)]
    holder = s.theirs.holder("job")
    if isinstance(result, ms.Lease):
        assert holder is not None
        assert (holder.owner, holder.token, holder.incarnation) == ("me", result.token, result.incarnation)
        with pytest.raises(ms.LeaseHeld):
            theirs(s)
        result.renew()
        assert result.release()
        assert s.theirs.holder("job") is None
    elif step.startswith("renew"):
        assert holder is not None
        assert holder.owner == "me"
        s.time.go(TTL * 0.9)
        assert s.theirs.holder("job") is not None
    else:
        assert holder is None


@pytest.mark.parametrize("step", long_unless(REQUESTS, lambda step: step in SOME))
def test_50_one_wrong_answer_anywhere_changes_nothing(fresh: Callable[[], Setting], step: str) -> None:
    """What was applied and answered with an error is adopted; what was not applied is sent again."""
    for position, method in enumerate(REQUESTS[step]):
        skip = REQUESTS[step][:position].count(method)
        for fault in FAULTS:
            s = fresh()
            result = run(s, step, lambda m=method, k=skip, f=fault, s=s: s.proxy.answer(f, method=m, skip=k))  # type: ignore[misc]
            assert s.proxy.met, f"{fault} at {method} {skip}"
            if step.startswith(("release", "break")):
                assert result is True, f"{fault} at {method} {skip}"
            check(s, step, result)


@pytest.mark.parametrize("step", long_unless(REQUESTS, lambda step: step in SOME))
def test_50_two_wrong_answers_in_a_row(fresh: Callable[[], Setting], step: str) -> None:
    """The write and the look after it; and the write twice."""
    for first in FAULTS:
        for then, method in ((Fault(503), "GET"), (Fault(None), "GET"), (Fault(None, applied=True), "PUT")):
            s = fresh()

            def faults(s: Setting = s, first: Fault = first, then: Fault = then, method: str = method) -> None:
                s.proxy.answer(first, method="PUT")
                s.proxy.answer(then, method=method, skip=REQUESTS[step].count("GET") if method == "GET" else 0)

            result = run(s, step, faults)
            check(s, step, result)


@pytest.mark.parametrize("step", long_unless(REQUESTS, lambda step: step in SOME))
@pytest.mark.parametrize("methods", [("PUT",), ("GET", "PUT")], ids=["PUT", "all"])
def test_42_no_usable_answer_is_no_lease(fresh: Callable[[], Setting], step: str, methods: tuple[str, ...]) -> None:
    """Until the deadline; then it is an error, and at worst the lease is free again after its ttl."""
    for fault in FEW:
        s = fresh()

        def faults(s: Setting = s, fault: Fault = fault) -> None:
            for method in methods:
                s.proxy.answer(fault, method=method, times=math.inf)

        before = s.time.monotonic()
        try:
            with until(before + SHORT + (LONG if step == "take over" else 0)):
                result = run(s, step, faults)
        except (ms.BackendUnavailable, ms.DeadlineExceeded):
            s.proxy.heal()
            assert s.time.monotonic() - before <= SHORT + (LONG if step == "take over" else 0)
            tokens = [event.token for event in s.theirs.audit("job")]
            assert tokens == [*range(1, len(tokens) + 1)]
            if step in ("create", "replace", "take over", "acquire again"):
                s.mine.acquire("job", owner="me again", ttl=TTL).release()  # this process knows what it gave up
            s.time.go(LONG)
            theirs(s)
        else:
            assert fault.applied, "it was not applied, and was said to be"
            assert methods == ("PUT",)
            check(s, step, result)


@pytest.mark.parametrize("fault", long_unless(FEW, lambda fault: fault in FEW[::2]), ids=str)
def test_50_wrong_answers_while_one_waits(fresh: Callable[[], Setting], fault: Fault) -> None:
    for method, skips in (("GET", (0, 1, 3)), ("PUT", (0, 1)), ("POST", (0,))):  # the last one deletes
        for skip in skips:
            s = fresh()
            result = run(s, "wait", lambda s=s, m=method, k=skip: s.proxy.answer(fault, method=m, skip=k))  # type: ignore[misc]
            assert isinstance(result, ms.Lease)
            assert result.token == 2
            check(s, "wait", result)


def test_an_answer_that_is_final_is_believed_after_some_more(fresh: Callable[[], Setting]) -> None:
    """A bucket that is not there, and a proxy that answers for it: no request is sent without end."""
    for fault, word in ((Fault(404), "no such bucket"), (Fault(403), "denies"), (Fault(200, body=b""), "no ETag")):
        s = fresh()
        method = "PUT" if fault.status == 404 else "GET"  # no lock file: that is an answer
        s.proxy.answer(fault, method=method, times=math.inf)
        s.proxy.seen.clear()
        with pytest.raises(ms.BackendUnavailable, match=word):
            s.mine.acquire("job", ttl=TTL)
        assert [one for one, *_ in s.proxy.seen].count(method) == 5
        assert s.time.monotonic() < 1002.0


def test_an_object_that_is_no_lock_file_at_one_look_is_read_again(
    fresh: Callable[[], Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = fresh()
    lease = theirs(s)
    book: Any = s.mine._book
    get, torn = book._cells._objects.get, [b"", b"<html>Sign in</html>"]

    def getting(key: str) -> Any:
        found = get(key)
        return found._replace(data=torn.pop()) if torn and found is not None else found

    monkeypatch.setattr(book._cells._objects, "get", getting)
    holder = s.mine.holder("job")
    assert holder is not None
    assert (holder.token, torn) == (lease.token, [])


def test_that_there_is_no_lock_file_is_asked_again(fresh: Callable[[], Setting]) -> None:
    """A proxy said so once, and a lease that another process held looked free."""
    s = fresh()
    lease = theirs(s)
    s.proxy.answer(Fault(404), method="GET")
    holder = s.mine.holder("job")
    assert holder is not None
    assert holder.token == lease.token


def test_43_an_unknown_answer_to_a_renewal_is_tried_again_until_its_own_deadline(fresh: Callable[[], Setting]) -> None:
    s = fresh()
    told: list[ms.Lease] = []
    lease = s.mine.acquire("job", owner="me", ttl=TTL, on_lost=told.append)
    s.proxy.answer(Fault(503), method="PUT", times=math.inf)
    s.proxy.seen.clear()
    left = lease._left()
    with pytest.raises(ms.BackendUnavailable), until(s.time.monotonic() + left):
        lease.renew()
    assert len(s.proxy.seen) > 20
    assert not lease.lost.is_set()
    s.time.go(2.0)
    with pytest.raises(ms.LeaseLost):
        lease.check()
    assert told == [lease]


def late(s: Setting) -> None:
    """Keep the writes of this end under way, and answer nothing."""
    s.proxy.answer(Fault(None, late=True), method="PUT")
    s.proxy.answer(Fault(503), method="PUT", times=math.inf)


def test_a_late_acquisition_that_nobody_waits_for_is_over_after_its_ttl(fresh: Callable[[], Setting]) -> None:
    s = fresh()
    late(s)
    with pytest.raises(ms.BackendUnavailable):
        mine(s)
    assert s.proxy.deliver() == [200]
    with pytest.raises(ms.LeaseHeld):  # no other client knows that it has the lease
        theirs(s)
    s.time.go(LONG)
    assert theirs(s).token == 2


def test_a_late_acquisition_is_known_to_who_gave_it_up(fresh: Callable[[], Setting]) -> None:
    s = fresh()
    looked_at(s)
    late(s)
    with pytest.raises(ms.BackendUnavailable):
        mine(s)
    assert s.proxy.deliver() == [200]
    s.proxy.heal()
    lease = mine(s)
    assert lease.token == 4  # 3 is the one that nobody holds
    lease.renew()


@pytest.mark.parametrize("before", [lambda s: None, looked_at, expired], ids=["create", "replace", "take over"])
def test_a_late_acquisition_fails_once_somebody_has_written(
    fresh: Callable[[], Setting], before: Callable[[Setting], None]
) -> None:
    s = fresh()
    before(s)
    late(s)
    with pytest.raises(ms.BackendUnavailable):
        mine(s)
    lease = theirs(s)
    assert s.proxy.deliver() == [412]
    lease.renew()
    holder = s.theirs.holder("job")
    assert holder is not None
    assert holder.owner == "they"


def test_a_late_renewal_or_release_fails_once_somebody_has_taken_over(fresh: Callable[[], Setting]) -> None:
    for operation in ("renew", "release"):
        s = fresh()
        lease = mine(s)
        late(s)
        with pytest.raises(ms.BackendUnavailable):
            getattr(lease, operation)()
        s.time.go(LONG)
        other = theirs(s)
        assert s.proxy.deliver() == [412]
        other.renew()


def test_a_late_release_frees_it(fresh: Callable[[], Setting]) -> None:
    s = fresh()
    lease = mine(s)
    late(s)
    with pytest.raises(ms.BackendUnavailable):
        lease.release()
    assert s.proxy.deliver() == [200]
    assert theirs(s).token == 3


def test_what_a_waiter_costs(fresh: Callable[[], Setting]) -> None:
    """Behind a holder who renews: a look a second, and a write every five seconds."""
    s = fresh()
    lease = theirs(s)

    class Renewing(Time):
        def sleep(self, seconds: float) -> None:
            before = self.monotonic() // 5
            super().sleep(seconds)
            if self.monotonic() // 5 != before:
                lease.renew()

    time = Renewing(s.time.at, s.time.moved, s.time.guard)
    book: Any = s.mine._book
    for part in (book, book._watch, book._cells, s.mine):
        part._clock = time
    s.proxy.seen.clear()
    with pytest.raises(ms.LeaseHeld):
        s.mine.acquire("job", owner="me", ttl=TTL, timeout=60.0)
    looks, writes = (sum(method == m for method, *_ in s.proxy.seen) for m in ("GET", "PUT"))
    assert 60 <= looks <= 160
    assert 10 <= writes <= 40
    lease.check()
