"""What Gravitino hides is hidden: its clients see a mask in the place of a secret that is stored in plain text."""

from __future__ import annotations

import httpx
import pytest

import metastore as ms
from metastore import SetProperty, secret
from metastore.secrets.keyring import new_key
from metastore.secrets.names import MASK, hiding_secrets
from metastore.serve import Principals, application
from tests.gravitino.conftest import Api
from tests.iceberg.server import running

CATALOG = "/metalakes/lake/catalogs/hive"
SCHEMA = "/metalakes/lake/catalogs/cat/schemas/s"


def test_no_answer_shows_a_secret(lake: Api) -> None:
    given = {"jdbc-user": "app", "jdbc-password": "hunter2", "s3-secret-access-key": "secret:hunter3", "region": "eu"}
    shown = {**given, "jdbc-password": MASK, "s3-secret-access-key": MASK}
    body = {"name": "hive", "type": "RELATIONAL", "provider": "jdbc-mysql", "properties": given}
    made = lake.ask("POST", "/metalakes/lake/catalogs", body)["catalog"]
    listed = lake.ask("GET", "/metalakes/lake/catalogs", details="true")["catalogs"]
    changed = lake.ask("PUT", CATALOG, {"updates": [{"@type": "updateComment", "newComment": "x"}]})["catalog"]
    answers = [made, lake.ask("GET", CATALOG)["catalog"], *[one for one in listed if one["name"] == "hive"], changed]
    for one in answers:
        assert {key: value for key, value in one["properties"].items() if key != "in-use"} == shown
    assert lake.store.catalogs.load("lake.hive").properties == given

    model = {"name": "m", "properties": {"password": "hunter4"}}
    lake.ask("POST", "/metalakes/lake/catalogs/cat/schemas/s/models", model)
    version = {"uri": "s3://a/b", "properties": {"api-secret": "hunter5"}}
    lake.ask("POST", f"{SCHEMA}/models/m/versions", version)
    for path in (f"{SCHEMA}/models/m", f"{SCHEMA}/models/m/versions/0"):
        assert "hunter" not in lake.client.get(f"/api{path}").text


def test_icebergs_protocol_hides_the_secrets_of_a_schema_too(lake: Api) -> None:
    place = "/iceberg/v1/lake.cat/namespaces/s"
    lake.store.schemas.alter("lake.cat.s", SetProperty("jdbc-password", "hunter2"), SetProperty("region", "eu"))
    assert lake.client.get(place).json()["properties"] == {"jdbc-password": MASK, "region": "eu"}
    assert lake.client.post(f"{place}/properties", json={"updates": {"jdbc-password": MASK}}).status_code == 400
    made = lake.client.post(place.rpartition("/")[0], json={"namespace": ["t"], "properties": {"password": "hunter3"}})
    assert made.json()["properties"] == {"password": MASK}
    assert lake.store.schemas.load("lake.cat.t").properties == {"password": "hunter3"}


def test_who_makes_something_below_a_secret_is_not_given_it() -> None:
    """A catalog that gives no credentials keeps its password, also from a table that asks for it."""
    keys = {"jdbc-user": "app", "jdbc-password": "hunter2"}
    with ms.open("memory://", principal="root") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", properties=keys)
        store.tables.create("lake.c.s.t", parents=True, properties={"credential-providers": "jdbc-user-password"})
        store.users.create("lake.bob")
        store.owners.set("lake.c.s.t", "lake.bob")
        store.roles.create("lake.r")
        store.roles.assign("lake.r", "lake.bob")
        for word in ("use_catalog", "use_schema"):
            store.roles.grant("lake.r", word, "lake.c", kind="catalog")
        app = application(store, principals=Principals(header="X-User"), authorization=True)

        def asked() -> int:
            path = "/api/metalakes/lake/objects/table/c.s.t/credentials"
            answer = client.get(path, headers={"X-User": "bob"})
            assert answer.is_success == ("hunter2" in answer.text)
            return answer.status_code

        with running(app) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert asked() == 403
            store.roles.grant("lake.r", "use_secret", "lake.c", kind="catalog")
            assert asked() == 200
            store.roles.revoke("lake.r", "use_secret", "lake.c", kind="catalog")
            store.catalogs.alter("lake.c", SetProperty("credential-providers", "jdbc-user-password"))
            assert asked() == 200


def test_a_mask_is_never_written(lake: Api) -> None:
    given = {"jdbc-password": "hunter2"}
    lake.ask(
        "POST",
        "/metalakes/lake/catalogs",
        {"name": "hive", "type": "RELATIONAL", "provider": "hive", "properties": given},
    )
    update = {"@type": "setProperty", "property": "jdbc-password", "value": MASK}
    assert lake.refused("PUT", CATALOG, {"updates": [update]})[0] == 400
    lake.ask("PUT", CATALOG, {"updates": [{**update, "value": "hunter3"}]})
    assert lake.store.catalogs.load("lake.hive").properties["jdbc-password"] == "hunter3"
    body = {"name": "other", "type": "RELATIONAL", "provider": "hive", "properties": {"jdbc-password": MASK}}
    assert lake.refused("POST", "/metalakes/lake/catalogs", body)[0] == 400
    lake.ask("PUT", CATALOG, {"updates": [{**update, "property": "note", "value": MASK}]})


def test_a_client_that_writes_back_what_it_read_keeps_the_secrets(lake: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    lake.store.catalogs.alter("lake.cat", SetProperty("metastore.secret-properties", "api-key"))
    given = (SetProperty("api-key", "hunter2"), SetProperty("password", secret("env:METASTORE_SECRET_KEY")))
    before = lake.store.schemas.alter("lake.cat.s", *given)
    iceberg = "/iceberg/v1/lake.cat/namespaces/s"
    shown = lake.ask("GET", SCHEMA)["schema"]["properties"]
    assert shown == lake.client.get(iceberg).json()["properties"] == before.to_dict()["properties"]
    assert shown["password"] == "secret:env:METASTORE_SECRET_KEY"
    lake.ask("PUT", SCHEMA, {"updates": [{"@type": "setProperty", "property": k, "value": shown[k]} for k in shown]})
    assert lake.client.post(f"{iceberg}/properties", json={"updates": shown}).status_code == 200
    assert lake.store.schemas.load("lake.cat.s").version == before.version
    assert lake.store.reveal("lake.cat.s", "api-key") == "hunter2"


@pytest.mark.parametrize("key", ["metastore.secret-properties", "metastore.secret-key", "credential-providers", "key"])
def test_a_setting_is_no_secret(key: str) -> None:
    assert hiding_secrets({key: "password"}) == {key: "password"}
