"""One place has one name in the store, whichever URL leads to it; two lock files never share a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from metastore.leases.objects.urls import address_of, open_objects
from tests.leases.worlds import client, s3_options
from tests.servers.s3 import S3Server


@pytest.fixture
def catalog() -> ms.Store:
    store = ms.open("memory://")
    store.metalakes.create("lake")
    return store


class Way(NamedTuple):
    """A way to a lock file: a URL, the name of a lease below it, and what the leases are opened with."""

    url: str | Path
    name: str
    options: dict[str, Any]


Ways = Callable[[str], tuple[Way, Way]]


@pytest.fixture
def ways(tmp_path: Path, locks_server: S3Server, bucket: str) -> Ways:
    """Return two ways to one lock file, by what they differ in."""
    remote: dict[str, Any] = s3_options(locks_server.url)

    def found(kind: str) -> tuple[Way, Way]:
        (tmp_path / "real").mkdir(exist_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "real")
        return {
            "s3a": (Way(f"s3://{bucket}/m", "job", remote), Way(f"s3a://{bucket}/m/", "job", remote)),
            "quoted": (Way(f"s3://{bucket}/q r", "job", remote), Way(f"s3://{bucket}/q%20r", "job", remote)),
            "a link": (Way(tmp_path / "real", "job", {}), Way(tmp_path / "link", "job", {})),
            "Hudi": (
                Way(tmp_path, "sales/orders", {"format": "hudi"}),
                Way(tmp_path / "sales", "orders", {"format": "hudi"}),
            ),
        }[kind]

    return found


@pytest.mark.parametrize("kind", ["s3a", "quoted", "a link", "Hudi"])
def test_one_place_has_one_name(ways: Ways, catalog: ms.Store, kind: str) -> None:
    one, other = ways(kind)
    late = ms.ObjectStoreLeases(one.url, store=catalog, **one.options).acquire(one.name, owner="late")
    others = ms.ObjectStoreLeases(other.url, store=catalog, **other.options)
    assert others.holder(other.name).owner == "late"  # type: ignore[union-attr]
    assert others.name_in_store(other.name) == late.tokens()[0].name
    assert others.break_(other.name)
    with pytest.raises(ms.LeaseLost):
        catalog.metalakes.alter("lake", ms.SetComment("late"), lease=late)
    assert catalog.verify() == []


@pytest.mark.parametrize(
    ("spellings", "options"),
    [
        (("s3://b/m", "s3a://b/m"), ({"endpoint": "http://Store:80/"}, {"aws_endpoint": "http://store"})),
        (("abfs://c@acct.dfs.core.windows.net/m", "abfss://c@ACCT.dfs.core.windows.net:443/m"), ({}, {})),
        (("az://c/m", "abfss://c@acct.dfs.core.windows.net/m"), ({"account_name": "acct"}, {})),
    ],
)
def test_one_address_has_one_spelling(spellings: tuple[str, str], options: tuple[dict[str, str], ...]) -> None:
    """By it the store gives a place its id again that was lost."""
    one, other = (address_of(url, given) for url, given in zip(spellings, options, strict=True))
    assert one == other
    assert address_of(spellings[0].replace("/m", "/M"), options[0]) != one
    assert address_of("az://c/m", {"account_name": "other"}) != address_of("az://c/m", {"account_name": "acct"})


def test_two_lock_files_have_two_names(tmp_path: Path, catalog: ms.Store) -> None:
    """``p`` with ``a/b``, and ``p/a`` with ``b``: what the holder of one does is nothing to that of the other."""
    ways = ((tmp_path / "p", "a/b"), (tmp_path / "p" / "a", "b"))
    leases = [ms.ObjectStoreLeases(url, store=catalog).acquire(name) for url, name in ways]
    for lease in leases:
        catalog.metalakes.alter("lake", ms.SetComment("both"), lease=lease)


OLD = {
    "format": "metastore-lease/1",
    "name": "job",
    "token": 7,
    "owner": "old",
    "incarnation": "i",
    "acquisition": "n",
    "renewals": 0,
    "ttl": 30.0,
    "acquired_at": "2026-01-01T00:00:00+00:00",
    "expires_at": "2026-01-01T00:00:30+00:00",
    "nonce": "n",
    "waiting": [],
    "history": [],
}


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("broken", [True, False])
def test_the_holder_of_an_older_program_is_fenced(tmp_path: Path, catalog: ms.Store, held: bool, broken: bool) -> None:
    """It was noted under the URL. The file goes on in the new format, with the next token, and older programs stop."""
    nobody = {} if held else dict.fromkeys(("owner", "incarnation", "acquisition", "renewals", "ttl", "expires_at"))
    (tmp_path / "job.json").write_text(json.dumps(OLD | nobody))
    old = f"{tmp_path.as_uri()}/job"
    assert catalog.leases.mirror(old, 7, "old", "i") is not None
    leases = ms.ObjectStoreLeases(tmp_path, store=catalog)
    if broken:
        assert leases.break_("job") is held
    else:
        assert leases.acquire("job").token == 8
    assert catalog.leases.noted(old) > 7
    leases.acquire("job")
    document = json.loads((tmp_path / "job.json").read_text())
    assert document["format"] == "metastore-lease/2"
    assert document["place"] == json.loads((tmp_path / ".metastore-place").read_text())["id"]


def test_an_id_that_was_lost_is_noticed(tmp_path: Path, catalog: ms.Store) -> None:
    """Under another id the tokens of the holders before would count for ever."""
    ms.ObjectStoreLeases(tmp_path, store=catalog).acquire("job").release()
    place = tmp_path / ".metastore-place"
    before = place.read_bytes()
    for damage in (b"", b"[]", before[:-3], b'{"format": "metastore-place/2", "id": "x"}', before.replace(b"7", b"8")):
        place.write_bytes(damage)
        leases = ms.ObjectStoreLeases(tmp_path, store=catalog)
        for call in (leases.acquire, leases.break_):
            with pytest.raises(ms.BackendUnavailable, match="put"):
                call("job")
    for back in (before, None):
        place.write_bytes(before) if back else place.unlink()
        ms.ObjectStoreLeases(tmp_path, store=catalog).acquire("job").release()
        assert json.loads(place.read_bytes()) == json.loads(before)


@pytest.mark.parametrize("kind", ["s3a", "quoted", "a link", "Hudi"])
def test_a_place_that_lost_everything_is_the_same_place(ways: Ways, catalog: ms.Store, kind: str) -> None:
    """Its id is lost, and the lock files are. The next holder fences the one before, whichever URL it has."""
    one, other = ways(kind)
    late = ms.ObjectStoreLeases(one.url, store=catalog, **one.options).acquire(one.name, owner="late")
    options = {name: value for name, value in one.options.items() if name != "format"}
    objects, _ = open_objects(one.url, 5.0, options, SYSTEM)
    for key in list(objects.keys()):
        objects.delete(key)
    ms.ObjectStoreLeases(other.url, store=catalog, **other.options).acquire(other.name)
    with pytest.raises(ms.LeaseLost):
        catalog.metalakes.alter("lake", ms.SetComment("late"), lease=late)


def test_a_place_whose_id_was_replaced_is_refused(
    locks_server: S3Server, bucket: str, catalog: ms.Store, tmp_path: Path
) -> None:
    """Another store found nothing there, and wrote an id of its own; this store has holders under the first one."""
    options = s3_options(locks_server.url)
    first = ms.ObjectStoreLeases(f"s3://{bucket}", store=catalog, **options).name_in_store("job").partition(":")[0]
    client(locks_server).delete_object(Bucket=bucket, Key=".metastore-place")
    with ms.open("memory://") as other:
        ms.ObjectStoreLeases(f"s3://{bucket}", store=other, **options).acquire("job")
    with pytest.raises(ms.BackendUnavailable, match=f"put {first} back"):
        ms.ObjectStoreLeases(f"s3a://{bucket}/", store=catalog, **options).acquire("job")
    elsewhere = ms.ObjectStoreLeases(tmp_path, store=catalog)
    assert elsewhere.acquire("job").token == 1


def test_the_id_survives_every_wrong_answer(locks_server: S3Server, bucket: str, catalog: ms.Store) -> None:
    from tests.leases.test_object_faults import FAULTS
    from tests.servers.http_faults import HttpFaults

    with HttpFaults(locks_server.port) as proxy:
        for number, fault in enumerate(FAULTS):
            url = f"s3://{bucket}/{number}"
            proxy.answer(fault, method="PUT")
            mine = ms.ObjectStoreLeases(url, store=catalog, **s3_options(proxy.url)).name_in_store("job")
            assert proxy.met
            assert mine == ms.ObjectStoreLeases(url, store=catalog, **s3_options(locks_server.url)).name_in_store("job")
            written = client(locks_server).get_object(Bucket=bucket, Key=f"{number}/.metastore-place")["Body"].read()
            assert mine == f"{json.loads(written)['id']}:job"
