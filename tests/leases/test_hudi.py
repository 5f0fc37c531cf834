"""A writer of Apache Hudi and ours exclude each other on the same lock file.

The Hudi writer is written by hand, after what Hudi's StorageBasedLockProvider does (read; valid unless ``expired`` or
``validUntil`` lies 500 ms back; If-None-Match or If-Match; release writes ``expired``), on a client that is not ours.
"""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

import metastore as ms
from metastore.clock import SYSTEM, Clock
from tests.leases.worlds import Time, client, s3_options
from tests.servers.process import wait_until
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.one_in(3)

TABLE = "sales/orders"
KEY = f"lake/{TABLE}/.hoodie/.locks/table_lock.json"
DRIFT_MS = 500


def status(error: ClientError) -> int:
    """Return what the server answered."""
    code: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return code


class HudiWriter:
    """One lock provider of Hudi's."""

    def __init__(self, server: S3Server, bucket: str, clock: Clock, validity: float = 30.0) -> None:
        self.client, self.bucket, self.clock, self.validity = client(server), bucket, clock, validity
        self.owner = str(uuid.uuid4())
        self.lock: tuple[dict[str, Any], str] | None = None

    def now(self) -> int:
        return self.clock.micros() // 1000

    def read(self) -> tuple[dict[str, Any], str] | None:
        try:
            found = self.client.get_object(Bucket=self.bucket, Key=KEY)
        except ClientError as error:
            if status(error) != 404:
                raise
            return None
        data = json.loads(found["Body"].read())
        assert isinstance(data["expired"], bool)  # all three are required by Hudi's reader
        assert isinstance(data["validUntil"], int)
        assert isinstance(data["owner"], str)
        return data, found["ETag"]

    def write(self, expired: bool, until: int, before: tuple[dict[str, Any], str] | None) -> bool:
        data = {"expired": expired, "validUntil": until, "owner": self.owner}
        condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": before[1]}
        try:
            body = json.dumps(data).encode()
            done = self.client.put_object(Bucket=self.bucket, Key=KEY, Body=body, **condition)
        except ClientError as error:
            if status(error) != 412:
                raise
            return False
        self.lock = (data, done["ETag"])
        return True

    def try_lock(self) -> bool:
        before = self.read()
        if before is not None and not before[0]["expired"] and self.now() <= before[0]["validUntil"] + DRIFT_MS:
            return False
        return self.write(False, self.now() + round(self.validity * 1000), before)

    def renew(self) -> bool:
        assert self.lock is not None
        return self.write(False, self.now() + round(self.validity * 1000), self.lock)

    def unlock(self) -> bool:
        assert self.lock is not None
        return self.write(True, self.lock[0]["validUntil"], self.lock)


def ours(server: S3Server, bucket: str, clock: Clock, **options: Any) -> ms.ObjectStoreLeases:
    return ms.ObjectStoreLeases(f"s3://{bucket}/lake", format="hudi", clock=clock, **s3_options(server.url), **options)


def test_hudi_respects_ours(locks_server: S3Server, bucket: str) -> None:
    time = Time()
    hudi, leases = HudiWriter(locks_server, bucket, time), ours(locks_server, bucket, time)
    lease = leases.acquire(TABLE, owner="crawler", ttl=30.0)
    assert lease.token is None
    assert not hudi.try_lock()
    time.go(25)
    lease.renew()
    time.go(25)
    assert not hudi.try_lock()
    assert lease.release()
    assert hudi.try_lock()
    with pytest.raises(ms.LeaseHeld, match=hudi.owner):
        leases.acquire(TABLE, owner="crawler", ttl=30.0)


def test_ours_respects_hudis(locks_server: S3Server, bucket: str) -> None:
    time = Time()
    hudi, leases = HudiWriter(locks_server, bucket, time), ours(locks_server, bucket, time)
    assert hudi.try_lock()
    for _ in range(3):
        time.go(20)
        assert hudi.renew()
        with pytest.raises(ms.LeaseHeld, match=hudi.owner):
            leases.acquire(TABLE, ttl=30.0)
    holder = leases.holder(TABLE)
    assert holder is not None
    assert (holder.owner, holder.token, holder.expired) == (hudi.owner, None, False)
    assert hudi.unlock()
    leases.acquire(TABLE, ttl=30.0).release()
    assert hudi.try_lock()
    time.go(30.4)
    with pytest.raises(ms.LeaseHeld):
        leases.acquire(TABLE, ttl=30.0)
    time.go(1.0)  # past max_drift
    lease = leases.acquire(TABLE, owner="late", ttl=30.0)
    assert not hudi.renew()
    lease.renew()


def test_hudi_takes_over_what_is_expired_and_ours_is_lost(locks_server: S3Server, bucket: str) -> None:
    time = Time()
    hudi, leases = HudiWriter(locks_server, bucket, time), ours(locks_server, bucket, time)
    lease = leases.acquire(TABLE, ttl=30.0)
    time.go(30.6)
    assert hudi.try_lock()
    with pytest.raises(ms.LeaseLost):
        lease.renew()
    assert not lease.release()
    assert hudi.renew()


def test_a_broken_hudi_lock_is_free_for_both(locks_server: S3Server, bucket: str) -> None:
    time = Time()
    hudi, other = HudiWriter(locks_server, bucket, time), HudiWriter(locks_server, bucket, time)
    assert hudi.try_lock()
    assert ours(locks_server, bucket, time).break_(TABLE)
    assert not hudi.renew()
    assert other.try_lock()


def test_hudis_and_ours_over_a_list_that_nothing_else_protects(locks_server: S3Server, bucket: str) -> None:
    inside: list[str] = []
    wrong: list[str] = []
    turns = {"hudi": 0, "ours": 0}
    end = threading.Event()

    def enter(who: str) -> None:
        inside.append(who)
        if inside != [who]:
            wrong.append(str(inside))
        inside.remove(who)
        turns[who.partition(" ")[0]] += 1

    def hudi(number: int) -> None:
        writer = HudiWriter(locks_server, bucket, SYSTEM)
        while not end.is_set():
            if writer.try_lock():
                enter(f"hudi {number}")
                assert writer.unlock()
                end.wait(0.01)

    def mine(number: int) -> None:
        leases = ours(locks_server, bucket, SYSTEM)
        while not end.is_set():
            with leases.acquire(TABLE, owner=f"ours {number}", timeout=20.0):
                enter(f"ours {number}")
            end.wait(0.05)  # there is no queue: who asks again at once keeps others out

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3) for work in (hudi, mine)]
    for thread in threads:
        thread.start()
    end.wait(2.0)
    wait_until(lambda: min(turns.values()) > 0, 60.0)  # on a busy machine
    end.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert min(turns.values()) > 0, turns


def test_what_the_rfc_says_is_read_too(locks_server: S3Server, bucket: str) -> None:
    time = Time()
    until = time.micros() // 1000 + 20_000
    body = json.dumps({"owner": "spark", "expiration": until, "expired": False}).encode()
    client(locks_server).put_object(Bucket=bucket, Key=KEY, Body=body)
    with pytest.raises(ms.LeaseHeld, match="spark"):
        ours(locks_server, bucket, time).acquire(TABLE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"owner": "x"}',
        b'{"owner": "x", "validUntil": "soon", "expired": false}',
        b'{"owner": 1, "validUntil": 1, "expired": false}',
        b'{"owner": "x", "validUntil": 1, "expired": 0}',
        b'{"owner": "x", "validUntil": 1000000000000000000000, "expired": false}',
    ],
)
def test_another_file_is_refused_and_never_overwritten(locks_server: S3Server, bucket: str, body: bytes) -> None:
    s3 = client(locks_server)
    s3.put_object(Bucket=bucket, Key=KEY, Body=body)
    leases = ours(locks_server, bucket, Time())
    for call in (leases.acquire, leases.holder, leases.break_):
        with pytest.raises(ms.BackendUnavailable, match="left as it is"):
            call(TABLE)
    assert s3.get_object(Bucket=bucket, Key=KEY)["Body"].read() == body


@pytest.mark.parametrize("name", ["/sales", "sales/", "a//b", "../up", "a/./b", "/"])
def test_a_name_is_the_base_path_of_a_table(locks_server: S3Server, bucket: str, name: str) -> None:
    leases = ours(locks_server, bucket, Time())
    for call in (leases.acquire, leases.holder, leases.break_):
        with pytest.raises(ms.InvalidArgument, match="base path"):
            call(name)


def test_it_has_no_token_no_history_and_no_list(locks_server: S3Server, bucket: str) -> None:
    leases = ours(locks_server, bucket, Time())
    lease = leases.acquire(TABLE)
    with pytest.raises(ms.InvalidArgument, match="store="):
        lease.tokens()
    with pytest.raises(ms.InvalidArgument, match="history"):
        list(leases.audit(TABLE))
    with pytest.raises(ms.InvalidArgument, match="lake"):
        list(leases.list())
    with pytest.raises(ms.LeaseLost):
        leases.join(TABLE, 1)
