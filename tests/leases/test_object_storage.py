"""Leases on object storage: what is special about them. What all books promise is in test_contract.py."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from metastore.leases.objects.client import ConditionFailed, Unsettled
from metastore.leases.objects.files import FileObjects
from metastore.leases.objects.lock_file import HISTORY
from tests.leases.worlds import ObjectWorld, Time, client, object_local, object_memory, object_s3, s3_options
from tests.servers.process import free_port
from tests.servers.s3 import SECRET, S3Server

pytestmark = pytest.mark.one_in(3)

TTL, LONG = 30.0, 60.0


@pytest.fixture(params=["object-memory", "object-local", "object-s3"])
def world(request: pytest.FixtureRequest) -> ObjectWorld:
    if request.param == "object-memory":
        return object_memory()
    if request.param == "object-local":
        return object_local(request.getfixturevalue("tmp_path"))
    return object_s3(request.getfixturevalue("locks_server"), request.getfixturevalue("bucket"))


# --- the file


def test_a_lock_file_can_be_read_by_people(tmp_path: Path) -> None:
    leases = ms.ObjectStoreLeases(tmp_path)
    lease = leases.acquire("nightly run/ü", owner="crawler", ttl=TTL)
    document = json.loads((tmp_path / "nightly%20run%2F%C3%BC.json").read_text())
    assert document["format"] == "metastore-lease/2"
    assert (document["name"], document["token"]) == ("nightly run/ü", 1)
    assert (document["owner"], document["incarnation"]) == ("crawler", lease.incarnation)
    assert document["ttl"] == TTL
    assert document["expires_at"].endswith("+00:00")
    assert [(past["action"], past["token"]) for past in document["history"]] == [("acquire", 1)]
    lease.release()
    document = json.loads((tmp_path / "nightly%20run%2F%C3%BC.json").read_text())
    assert (document["token"], document["owner"], document["expires_at"]) == (2, None, None)


@pytest.mark.parametrize("name", ["a" * 255, "ü" * 255, "😀" * 255, "../../etc/passwd", ".", "..", "%2F", "a.json"])
def test_any_name_has_a_file_of_its_own(world: ObjectWorld, name: str) -> None:
    leases = world.leases()
    lease = leases.acquire(name, ttl=TTL)
    others = [name[:-1] + "b", name.replace("%", "/")] if name not in (".", "..") else ["..."]
    for other in set(others) - {name}:
        assert leases.holder(other) is None
    assert [holder.name for holder in leases.list()] == [name]
    assert lease.release()


def test_the_history_has_an_end(world: ObjectWorld) -> None:
    leases = world.leases()
    for _ in range(HISTORY):
        leases.acquire("job").release()
    trail = list(leases.audit("job"))
    assert [event.token for event in trail] == [*range(HISTORY + 1, 2 * HISTORY + 1)]


NOT_OURS = {
    "empty": b"",
    "not JSON": b"held by ada",
    "a list": b"[]",
    "nested": b"[" * 100_000,
    "another format": b'{"format": "other"}',
    "Hudi's": b'{"owner": "x", "validUntil": 1, "expired": false}',
    "only the format": b'{"format": "metastore-lease/1"}',
    "binary": b"\x80\x81",
}


@pytest.mark.parametrize("body", NOT_OURS.values(), ids=NOT_OURS)
def test_another_file_is_refused_and_never_overwritten(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(body)
    refused_everywhere(tmp_path, file, ms.BackendUnavailable)


def test_a_truncated_or_altered_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    ms.ObjectStoreLeases(tmp_path).acquire("job", owner="ada")
    whole = file.read_bytes()
    for end in range(0, len(whole) - 3, 40):
        file.write_bytes(whole[:end])
        refused_everywhere(tmp_path, file, ms.BackendUnavailable)
    document = json.loads(whole)
    for field in document:
        without = {key: value for key, value in document.items() if key != field}
        file.write_text(json.dumps(without))
        refused_everywhere(tmp_path, file, ms.BackendUnavailable)
    damage = {"token": -1, "place": 7, "nonce": None, "expires_at": "2026-01-01T00:00:00", "ttl": "x"}
    for field, value in damage.items():
        file.write_text(json.dumps(document | {field: value}))
        refused_everywhere(tmp_path, file, ms.BackendUnavailable)
    file.write_text(json.dumps(document | {"name": "another"}))
    refused_everywhere(tmp_path, file, ms.BackendUnavailable)
    file.write_text(json.dumps(document | {"format": "metastore-lease/3"}))
    refused_everywhere(tmp_path, file, ms.MigrationNeeded)


def refused_everywhere(folder: Path, file: Path, error: type[ms.MetastoreError]) -> None:
    before = file.read_bytes()
    leases = ms.ObjectStoreLeases(folder, clock=Time())
    for call in (leases.acquire, leases.holder, leases.break_, lambda name: list(leases.audit(name))):
        with pytest.raises(error, match=r"job\.json"):
            call("job")
    with pytest.raises(error):
        leases.acquire_many(["a", "job"])
    with pytest.raises(error):
        list(leases.list())
    assert file.read_bytes() == before
    assert leases.holder("a") is None


def test_a_damaged_file_stops_nothing_else(locks_server: S3Server, bucket: str) -> None:
    """A list shows the others, and names it; to look at one lease, or to break it, reads only its own file."""
    leases = object_s3(locks_server, bucket).leases()
    for name in ("a", "b", "c"):
        leases.acquire(name, owner="ada")
    s3 = client(locks_server)
    for key in ("b", "not ours"):
        s3.put_object(Bucket=bucket, Key=f"locks/{key}.json", Body=b"{}")
    errors: list[ms.MetastoreError] = []
    assert [holder.name for holder in leases.list(unreadable=errors.append)] == ["a", "c"]
    assert ["b.json" in str(error) or "not ours.json" in str(error) for error in errors] == [True, True]
    found = leases.list()
    assert (next(found).name, next(found).name) == ("a", "c")
    with pytest.raises(ms.BackendUnavailable, match=r"\.json was left as it is"):
        next(found)
    with locks_server.requests() as requests:
        assert leases.holder("a", expired=True).owner == "ada"  # type: ignore[union-attr]
        assert leases.break_("c")
    assert {request.path.rsplit("/", 1)[-1] for request in requests.made} == {"a.json", "c.json", bucket}


# --- clocks


@pytest.mark.parametrize("hours", [-5.0, 5.0])
def test_a_holder_whose_wall_clock_is_hours_off_harms_nobody_who_watches(world: ObjectWorld, hours: float) -> None:
    """A late one keeps others waiting no longer than its ttl; two never have the same token."""
    wrong, other = world.leases(world.time.beside(hours * 3600)), world.leases()
    lease = wrong.acquire("job", owner="wrong", ttl=TTL)
    taken = other.acquire("job", owner="right", ttl=TTL, timeout=LONG)
    assert taken.token == 2
    with pytest.raises(ms.LeaseLost):
        lease.renew()


def test_a_wall_clock_that_jumps_ends_a_lease_early_and_never_late(world: ObjectWorld) -> None:
    for hours, over in ((5.0, True), (-5.0, False)):
        time = world.time.beside(0.0)
        lease = world.leases(time).acquire(f"job {hours}", ttl=TTL)
        time.moved[0] = hours * 3600
        assert lease.is_over() is over
        world.go(LONG)
        assert lease.is_over()


def test_a_waiter_whose_clock_is_hours_ahead_blocks_nobody(world: ObjectWorld) -> None:
    from metastore.leases.book import Want

    first, second, ahead = world.leases(), world.leases(), world.leases(world.time.beside(5 * 3600.0))
    lease = first.acquire("job", owner="ada", ttl=TTL)
    ahead._book.queue(Want(("job",), "ahead", "x", TTL)).__enter__()
    lease.release()
    second.acquire("job", owner="bob", ttl=TTL)


# --- what it costs


def test_requests(locks_server: S3Server, bucket: str) -> None:
    leases = object_s3(locks_server, bucket).leases()

    def methods(call: Any) -> list[str]:
        with locks_server.requests() as requests:
            call()
        return [request.method for request in requests.made]

    held: list[ms.Lease] = []
    assert methods(lambda: held.append(leases.acquire("job"))) == ["GET", "GET", "PUT"]  # the file, the queue
    assert methods(held[0].renew) == ["PUT"]
    assert methods(held[0].release) == ["PUT"]
    assert methods(lambda: held.append(leases.acquire("job"))) == ["GET", "PUT"]
    assert methods(lambda: leases.holder("job")) == ["GET", "GET"]
    other = object_s3(locks_server, bucket).leases()

    def refused(timeout: float = 0.0) -> None:
        with pytest.raises(ms.LeaseHeld):
            other.acquire("job", timeout=timeout)

    assert methods(refused) == ["GET"]
    waits = methods(lambda: refused(timeout=0.01))
    assert waits == ["GET", "GET", "PUT", "GET", "POST"]  # in vain; the queue, a place in it, a look, and away
    held[1].release()
    several = methods(lambda: held.append(leases.acquire_many(["a", "b"])))  # type: ignore[arg-type]
    assert several == ["GET"] * 4 + ["GET", "PUT"] * 2


# --- where it cannot be had


def test_what_cannot_be_used_is_a_typed_error_at_once(locks_server: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    for bucket, word in (("forbidden", "denies access"), ("no-such-bucket-here", "no such bucket")):
        leases = ms.ObjectStoreLeases(f"s3://{bucket}/locks", clock=Time(), **s3_options(locks_server.url))
        with pytest.raises(ms.BackendUnavailable, match=word) as refused:
            leases.acquire("job")
        texts += [str(refused.value), repr(leases)]
    unreachable = s3_options(f"http://127.0.0.1:{free_port()}")
    leases = ms.ObjectStoreLeases("s3://bucket/locks", clock=Time(), **unreachable)
    with pytest.raises(ms.BackendUnavailable, match="no answer") as nobody:
        leases.acquire("job")
    assert nobody.value.transient
    assert nobody.value.__cause__ is None
    texts += [str(nobody.value), repr(leases), caplog.text]
    assert not [text for text in texts if SECRET in text]


BAD_URLS = {
    "": "string",
    "ftp://server/x": "not kept in",
    "s3:///prefix": "no bucket",
    f"s3://key:{SECRET}@bucket/x": "parsed",
    "s3://key:secret@bucket/x": "credentials",
    f"s3://bucket/x?secret_access_key={SECRET}": "credentials",
    f"https://account.blob.core.windows.net/c?sig={SECRET}": "credentials",
    "file://server/share": "local lock files",
    "s3://[bucket/x": "parsed",
}


@pytest.mark.parametrize(("url", "word"), BAD_URLS.items())
def test_bad_urls(url: str, word: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=word) as refused:
        ms.ObjectStoreLeases(url)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"format": "zookeeper"}, "formats"),
        ({"max_drift": 0}, "max_drift"),
        ({"request_timeout": -1}, "request_timeout"),
        ({"retry_config": {}}, "retry_config"),
        ({"no_such_option": SECRET}, "no_such_option"),
    ],
)
def test_bad_options(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=word) as refused:
        ms.ObjectStoreLeases("s3://bucket/x", **options)
    assert SECRET not in str(refused.value)


def test_without_obstore_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["obstore"] = None
import metastore as ms
try:
    ms.ObjectStoreLeases("s3://bucket/locks")
except ms.BackendUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'versioned-metastore[object-store]'" in done.stdout


def test_a_forked_child_is_told_and_does_not_hang(locks_server: S3Server, bucket: str) -> None:
    """obstore's threads do not come along; also what the parent holds is not the child's."""
    script = f"""
import os, sys, metastore as ms
leases = ms.ObjectStoreLeases("s3://{bucket}/locks", **{s3_options(locks_server.url)!r})
lease = leases.acquire("job")
child = os.fork()
if not child:
    assert not lease.release()
    try:
        leases.acquire("job")
    except ms.BackendUnavailable as error:
        print("child:", error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(lease.release())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "forked" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"


# --- local files


def test_local_files_have_one_winner(tmp_path: Path) -> None:
    """Many writers expect the same version; exactly one replaces it."""
    writers = 16
    objects = [FileObjects(tmp_path, SYSTEM) for _ in range(writers)]
    etag = objects[0].put("x", b"0", None)
    start = threading.Barrier(writers)

    def write(number: int, turn: int, etag: str | None) -> str | None:
        start.wait()
        while True:
            try:
                return objects[number].put(f"x{turn}" if etag is None else "x", f"{turn}-{number}".encode(), etag)
            except ConditionFailed:
                return None
            except Unsettled:  # busy
                continue

    with ThreadPoolExecutor(writers) as pool:
        for turn in range(30):
            created = [pool.submit(write, number, turn, None) for number in range(writers)]
            assert len([1 for future in created if future.result()]) == 1
            replaced = [pool.submit(write, number, turn, etag) for number in range(writers)]
            (etag,) = [result for future in replaced if (result := future.result())]
            found = objects[0].get("x")
            assert found is not None
            assert found.etag == etag
    assert not list(tmp_path.glob("*.draft"))


def test_processes_share_local_files(tmp_path: Path) -> None:
    script = f"""
import metastore as ms
leases = ms.ObjectStoreLeases({str(tmp_path)!r})
for _ in range(25):
    with leases.acquire("job", timeout=60.0):
        with open({str(tmp_path / "counter")!r}, "r+") as file:
            value = int(file.read())
            file.seek(0)
            file.write(str(value + 1))
"""
    (tmp_path / "counter").write_text("0")
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0] * 4
    assert (tmp_path / "counter").read_text() == "100"


def test_a_place_that_is_no_folder_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ms.BackendUnavailable, match="lock files cannot be kept"):
        ms.ObjectStoreLeases(tmp_path / "file").acquire("job")


def test_urls_of_local_files_lead_to_the_same(tmp_path: Path) -> None:
    here = os.path.relpath(tmp_path)
    for url in (tmp_path, str(tmp_path), tmp_path.as_uri(), here):
        lease = ms.ObjectStoreLeases(url).acquire("job")
        assert (tmp_path / "job.json").is_file()
        assert repr(ms.ObjectStoreLeases(url)) == f"ObjectStoreLeases({tmp_path.as_uri()!r})"
        lease.release()


# --- the queue


def test_nobody_starves_beside_those_who_never_pause(locks_server: S3Server, bucket: str) -> None:
    """Four acquire and release in tight loops: of equals, each has its share."""
    turns: list[int] = []
    failures: list[BaseException] = []

    def loop(number: int) -> None:
        leases = object_s3(locks_server, bucket).real()
        try:
            while len(turns) < 40:
                with leases.acquire("job", timeout=60.0):
                    turns.append(number)
        except BaseException as error:  # noqa: BLE001  (the main thread raises it)
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    counts = [turns.count(number) for number in range(4)]
    assert min(counts) >= 0.5 * max(counts), counts


def test_a_waiter_has_its_turn_beside_one_who_does_not_wait(locks_server: S3Server, bucket: str) -> None:
    hasty, waiter = object_s3(locks_server, bucket).real(), object_s3(locks_server, bucket).real()
    had = threading.Event()

    def loop() -> None:
        while not had.is_set():
            try:
                hasty.acquire("job").release()
            except ms.LeaseHeld:
                continue

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        waiter.acquire("job", timeout=10.0).release()
    finally:
        had.set()
        thread.join()


def test_a_place_in_the_queue_ends_with_its_call(world: ObjectWorld) -> None:
    """A process that died while it waited counts no longer than it would have waited."""
    from metastore.leases.book import Want

    first, second = world.leases(), world.leases()
    lease = first.acquire("job", owner="ada", ttl=TTL)
    died = second._book.queue(Want(("job",), "died", "x", TTL), world.time.monotonic() + 3.0)
    died.__enter__()
    lease.release()
    with pytest.raises(ms.LeaseHeld):
        first.acquire("job", owner="bob", ttl=TTL)
    world.go(5.0)
    first.acquire("job", owner="bob", ttl=TTL).release()
    world.go(100.0)
    first.acquire("job", owner="bob", ttl=TTL)
    book: Any = first._book
    assert [key for key in book._cells.keys(math.inf) if "queue" in key] == []
