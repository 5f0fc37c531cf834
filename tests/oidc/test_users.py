"""Who a token's user is: what the issuer and the subject say, whoever has the name."""

from __future__ import annotations

import logging
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import auth as clients_auth
from pyiceberg.exceptions import NoSuchNamespaceError, UnauthorizedError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import metastore as ms
from metastore.serve import Principals
from metastore.serve.actors import Actors
from metastore.serve.console import Console
from metastore.serve.iceberg.warehouses import Warehouses
from metastore.serve.memberships import Memberships
from metastore.serve.oidc import Issuer
from metastore.serve.oidc.tokens import Wanted, groups_of
from metastore.serve.principals import Claimed, NotAuthenticated, Principal
from metastore.store.views import UserStore
from tests.iceberg.server import served
from tests.oidc.issuer import AUDIENCE, MovedClock, OwnIssuer

CLAIM = "preferred_username"


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    with OwnIssuer() as own:
        yield own


@pytest.fixture
def address(own: OwnIssuer, url: str, tmp_path: Path) -> Iterator[str]:
    """Serve the namespace ``sales``, which the user ``ann`` with the subject 1 may see."""
    principals = Principals(issuer=Issuer(own.url, AUDIENCE, user_claim=CLAIM, groups_claim="groups"))
    with served(url, tmp_path / "w", principals, admins=["root", f"{own.url}#0"]) as address:
        with ms.open(url) as store:
            store.schemas.create("lake.ice.sales")
            store.users.create("lake.ann", external_id=f"{own.url}#1")
            store.roles.create("lake.reader")
            for right in ("use_catalog", "use_schema", "create_table"):
                store.roles.grant("lake.reader", right, on="lake.ice")
            store.roles.assign("lake.reader", "lake.ann")
        yield address


def namespaces(address: str, token: str) -> list[str] | int:
    """Return the namespaces that the owner of a token sees, by both protocols; or the status."""
    headers = {"Authorization": f"Bearer {token}"}
    schemas = f"{address.replace('/iceberg', '/api')}/metalakes/lake/catalogs/ice/schemas"
    iceberg = httpx.get(f"{address}/v1/lake.ice/namespaces", headers=headers, verify=False)  # there is no TLS
    gravitino = httpx.get(schemas, headers=headers, verify=False)
    assert iceberg.status_code == gravitino.status_code
    if iceberg.status_code != 200:
        return iceberg.status_code
    found: list[str] = [name for (name,) in iceberg.json()["namespaces"]]
    assert found == [one["name"] for one in gravitino.json()["identifiers"]]
    return found


def test_a_name_that_is_given_to_somebody_else_inherits_nothing(address: str, own: OwnIssuer, url: str) -> None:
    def ann(subject: str) -> list[str] | int:
        return namespaces(address, own.token(subject, **{CLAIM: "ann"}))

    assert ann("1") == ["sales"]
    assert ann("2") == 404
    with ms.open(url) as store:
        for other in (f"{own.url}/#1", "1", None):
            store.users.alter("lake.ann", ms.SetExternalId(other))
            assert ann("1") == ann("2") == 404, other
        store.users.alter("lake.ann", ms.SetExternalId(f"{own.url}#2"))
        assert (ann("1"), ann("2")) == (404, ["sales"])
        store.users.drop("lake.ann")
        assert ann("2") == 404
        store.users.create("lake.ann", external_id=f"{own.url}#2")
        assert ann("2") == 404  # another user, without its rights
        store.roles.assign("lake.reader", "lake.ann")
        assert ann("2") == ["sales"]
        store.metalakes.create("more")  # where the name is somebody else's
        store.users.create("more.ann", external_id=f"{own.url}#1")
    headers = {"Authorization": f"Bearer {own.token('2', **{CLAIM: 'ann'})}"}
    lakes = httpx.get(address.replace("/iceberg", "/api/metalakes"), headers=headers).json()["metalakes"]
    assert [one["name"] for one in lakes] == ["lake"]


def test_groups_follow_the_token(address: str, own: OwnIssuer, url: str) -> None:
    def seen(*groups: str, subject: str = "5", **claims: Any) -> list[str] | int:
        return namespaces(address, own.token(subject, **{CLAIM: "bob", "groups": list(groups), **claims}))

    with ms.open(url) as store:
        bob = store.users.create("lake.bob", external_id=f"{own.url}#5")
        store.users.create("lake.eve", external_id=f"{own.url}#6")
        theirs = store.groups.create(("lake", "/readers"), external_id=f"{own.url}#/readers")
        store.roles.assign("lake.reader", theirs)
        ours = store.groups.create("lake.ours")
        store.groups.create("lake.other", external_id=f"{own.url}#ours")
        store.groups.create("lake.beside", external_id=f"{own.url}/#beside")
        store.metalakes.create("more")
        store.groups.create(("more", "/readers"), external_id=f"{own.url}#/readers")

        def groups() -> list[str]:
            return [group.name for group in store.users.groups(bob)]

        assert (seen("ours", "other", "beside"), groups()) == (404, [])
        assert (seen("/readers", "", "x" * 300, "a\0", "new"), groups()) == (["sales"], ["/readers"])
        assert (seen(), groups()) == (404, [])
        store.groups.add(ours, bob)
        assert (seen("/readers"), groups()) == (["sales"], ["/readers", "ours"])
        assert (seen("ours"), groups()) == (404, ["ours"])  # who was put into a group by hand stays there
        assert seen("/readers") == ["sales"]
        for unknown in ({"groups": "/readers"}, {"groups": [1]}):
            assert seen(**unknown) == 401
        assert seen(groups=None, _claim_names={"groups": "src1"}) == 401
        assert groups() == ["/readers", "ours"]  # a token that is refused changes nothing
        assert seen(groups=None) == 404
        assert groups() == ["ours"]
        assert seen("/readers", subject="6") == 404
        assert list(store.groups.members(theirs)) == []
        written = [one for one in store.changes(kinds=["membership"]) if one.principal == own.url]
        assert {one.reason for one in written} == {"the groups of a token"}


def test_a_page_that_stays_open_moves_nobody_between_groups() -> None:
    """It reads each second: its token would count again and again beside a newer one."""
    issuer = "https://idp.example"
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        ann = store.users.create("lake.ann", external_id=f"{issuer}#1")
        store.groups.create("lake.readers", external_id=f"{issuer}#readers")
        actors = Actors(store, Principals(issuer=Issuer(issuer, AUDIENCE)), authorization=True)
        console = Console(store, actors, Warehouses(store, actors, {}, {}))
        older, newer = (
            Principal("ann", f"{issuer}#1", Claimed(issuer, frozenset(names))) for names in ((), ("readers",))
        )
        for view, principal, groups in (
            (console._view, newer, ["readers"]),
            (console._hub._view, older, ["readers"]),
            (console._view, older, []),
        ):
            assert isinstance(view(principal), UserStore)
            assert [group.name for group in store.users.groups(ann)] == groups
        console.close()


def test_a_disabled_metalake_locks_nobody_out_of_the_others() -> None:
    """Nobody can leave a group there: the user has no rights in it until then, not in an open page either."""
    issuer = "https://idp.example"
    with ms.open("memory://") as store:
        for lake in ("closed", "other"):
            store.metalakes.create(lake)
            store.catalogs.create((lake, "c"), type="relational")
            ann = store.users.create((lake, "ann"), external_id=f"{issuer}#1")
            role = store.roles.create((lake, "reader"))
            store.roles.grant(role, "use_catalog", (lake, "c"), kind="catalog")
            store.roles.assign(role, ann)
        group = store.groups.create("closed.readers", external_id=f"{issuer}#readers")
        store.groups.add(group, "closed.ann")
        actors = Actors(store, Principals(issuer=Issuer(issuer, AUDIENCE)), authorization=True)

        def sees(names: tuple[str, ...] | None) -> list[bool]:
            groups = None if names is None else Claimed(issuer, frozenset(names))
            view = actors.of(Principal("ann", f"{issuer}#1", groups))
            return [view.catalogs.exists((lake, "c")) for lake in ("closed", "other")]

        store.metalakes.disable("closed")
        assert [sees(()), sees(None), sees(("readers",))] == [[False, True], [False, True], [True, True]]
        assert sees(()) == [False, True]
        store.metalakes.enable("closed")
        assert [sees(()), sees(None)] == [[True, True], [True, True]]
        assert list(store.users.groups("closed.ann")) == []


def test_a_member_of_a_group_whose_letters_the_issuer_writes_otherwise_stays() -> None:
    """It was taken out and put in again each second, and had no rights in between."""
    issuer, name = "https://idp.example", "caf\u00e9"
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        ann = store.users.create("lake.ann")
        store.groups.create(("lake", name), external_id=f"{issuer}#{name}")
        for _ in range(2):
            Memberships(store).follow(Claimed(issuer, frozenset([unicodedata.normalize("NFD", name)])), [ann])
            assert [one.action for one in store.changes(kinds=["membership"])] == ["create"]


def test_groups_may_lie_below_another_claim_and_a_dot_is_part_of_a_name() -> None:
    claims = {
        "realm_access": {"roles": ["a"], "x/y~z": {"": ["b"]}},
        "realm_access.roles": ["dots"],
        "https://lake.example/groups": ["url"],
        "text": "x",
    }

    def found(claim: str) -> list[str]:
        groups = groups_of(claims, Wanted("i", "a", "sub", claim))
        assert groups is not None
        return sorted(groups.names)

    assert [found("/realm_access/roles"), found("/realm_access/x~1y~0z/")] == [["a"], ["b"]]
    assert [found("realm_access.roles"), found("https://lake.example/groups")] == [["dots"], ["url"]]
    assert [found("/realm_access/other"), found("/other/roles"), found("realm_access/roles")] == [[], [], []]
    for wrong in ("/realm_access", "/text/roles", "/text"):
        with pytest.raises(NotAuthenticated):
            found(wrong)


def test_no_name_makes_an_admin(address: str, own: OwnIssuer) -> None:
    assert namespaces(address, own.token("9", **{CLAIM: "root"})) == 404
    assert namespaces(address, own.token("9", **{CLAIM: f"{own.url}#0"})) == 404
    assert namespaces(address, own.token("0", **{CLAIM: "anybody"})) == ["sales"]


@pytest.mark.one_in(2, on="postgres")
def test_pyiceberg_signs_in_with_client_credentials(
    address: str, own: OwnIssuer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "metastore.audit")
    with ms.open(url) as store:
        store.users.create("lake.etl", external_id=f"{own.url}#id-of-etl")
        store.roles.assign("lake.reader", "lake.etl")

    def opened(**auth: Any) -> Any:
        return load_catalog("x", type="rest", uri=address, warehouse="lake.ice", **auth)

    def of_client(secret: str) -> dict[str, Any]:
        said = {"client_id": "etl", "client_secret": secret, "token_url": f"{own.url}/token"}
        return {"auth": {"type": "oauth2", "oauth2": said}}

    for auth in (of_client("secret-of-etl"), {"token": own.token("id-of-etl", **{CLAIM: "etl"})}):
        assert opened(**auth).list_namespaces() == [("sales",)]
    with pytest.raises(NoSuchNamespaceError):
        opened(**of_client("secret-of-etl")).load_namespace_properties("other")
    for wrong in ({"token": own.token("id-of-etl", aud="x", **{CLAIM: "etl"})}, {}):
        with pytest.raises(UnauthorizedError):
            opened(**wrong)
    signed_in = [one for one in caplog.records if '"signed_in"' in one.getMessage()]
    assert all('"user": "etl"' in one.getMessage() for one in signed_in)
    assert len(signed_in) >= 2


def test_pyiceberg_renews_its_token_by_itself(
    own: OwnIssuer, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, own.life = MovedClock(), 60
    monkeypatch.setattr(clients_auth, "time", clock)
    with served(sqlite_url, tmp_path / "w", Principals(issuer=Issuer(own.url, AUDIENCE, clock=clock))) as address:
        said = {"client_id": "etl", "client_secret": "secret-of-etl", "token_url": f"{own.url}/token"}
        oauth2: Any = {"type": "oauth2", "oauth2": {**said, "refresh_margin": 10}}
        catalog = load_catalog("x", type="rest", uri=address, warehouse="lake.ice", auth=oauth2)
        first = load_catalog("y", type="rest", uri=address, warehouse="lake.ice", token=own.token(exp=_in(60)))
        catalog.create_namespace("sales")
        before = own.granted
        for n in range(3):
            assert own.granted == before + n
            assert catalog.list_namespaces() == [("sales",)]
            own.ahead += 100
            clock.move(100)
            catalog.create_table(("sales", f"t{n}"), Schema(NestedField(1, "id", LongType())))
        with pytest.raises(UnauthorizedError):  # the token of the beginning is over
            first.list_namespaces()


def _in(seconds: int) -> int:
    return int(time.time()) + seconds


def test_the_console_takes_a_token_of_the_issuer(address: str, own: OwnIssuer) -> None:
    base = address.replace("/iceberg", "/console/")
    with httpx.Client(base_url=base, follow_redirects=True) as browser:
        own_page = {"Sec-Fetch-Site": "same-origin"}
        assert browser.post("signin", data={"token": own.token("1", aud="x")}, headers=own_page).status_code == 401
        browser.post("signin", data={"token": own.token("1", **{CLAIM: "ann"})}, headers=own_page)
        page = browser.get("./?path=lake.ice")
        assert page.status_code == 200
        assert "sales" in page.text
        assert "ann" in page.text
