"""Keycloak as the issuer: its access tokens are valid, its other tokens are not, and its keys may change.

``make keycloak`` fetches it. The first start builds it for a minute.
"""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from pyiceberg.catalog import load_catalog

import metastore as ms
from metastore.serve import Principals
from metastore.serve.oidc import Client, Issuer
from tests.iceberg.server import served
from tests.oidc.browser import PUBLIC, SECRET, Browser
from tests.oidc.issuer import AUDIENCE, MovedClock
from tests.servers.process import free_port, wait_until

KEYCLOAK = Path(__file__).parents[2] / "build" / "keycloak"
CLAIM = "preferred_username"
MAPPER = {
    "name": "audience",
    "protocol": "openid-connect",
    "protocolMapper": "oidc-audience-mapper",
    "config": {"included.custom.audience": AUDIENCE, "access.token.claim": "true", "id.token.claim": "true"},
}
REALM = {
    "realm": "lake",
    "enabled": True,
    "clients": [
        {
            "clientId": "etl",
            "secret": "secret-of-etl",
            "serviceAccountsEnabled": True,
            "directAccessGrantsEnabled": True,
            "protocolMappers": [MAPPER],
        },
        {
            "clientId": "console",
            "secret": SECRET,
            "redirectUris": [f"{PUBLIC}/console/callback"],
            "attributes": {"pkce.code.challenge.method": "S256", "post.logout.redirect.uris": f"{PUBLIC}/*"},
            "protocolMappers": [MAPPER],
        },
    ],
    "roles": {"realm": [{"name": "reader"}]},
    "users": [
        {
            "username": "ann",
            "enabled": True,
            "email": "ann@corp.com",
            "firstName": "Ann",
            "lastName": "Lee",
            "credentials": [{"type": "password", "value": "password-of-ann"}],
            "realmRoles": ["reader"],
        }
    ],
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (KEYCLOAK / "bin" / "kc.sh").exists(), reason="Keycloak is missing (make keycloak)"),
]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """Run Keycloak with the realm, in memory; give its address."""
    port = free_port()
    (KEYCLOAK / "data" / "import").mkdir(parents=True, exist_ok=True)
    (KEYCLOAK / "data" / "import" / "lake.json").write_text(json.dumps(REALM))
    words: list[str | Path] = [
        KEYCLOAK / "bin" / "kc.sh",
        "start-dev",
        "--db=dev-mem",
        "--cache=local",
        "--import-realm",
    ]
    words += ["--http-host=127.0.0.1", f"--http-port={port}", f"--http-management-port={free_port()}"]
    more = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin"}
    with subprocess.Popen(
        words,
        env={**os.environ, **more, "JAVA_OPTS_KC_HEAP": "-Xmx384m"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # its script starts another program, which ends with the group
    ) as keycloak:
        try:
            address = f"http://127.0.0.1:{port}"
            assert wait_until(lambda: _answers(f"{address}/realms/lake/.well-known/openid-configuration"), 400.0)
            yield address
        finally:
            os.killpg(keycloak.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=30.0).status_code == 200
    except httpx.HTTPError:
        return False


def granted(base: str, realm: str = "lake", **said: str) -> dict[str, Any]:
    answer = httpx.post(f"{base}/realms/{realm}/protocol/openid-connect/token", data=said, timeout=60.0)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def of_ann(base: str) -> dict[str, Any]:
    client = {"client_id": "etl", "client_secret": "secret-of-etl", "scope": "openid"}
    return granted(base, grant_type="password", username="ann", password="password-of-ann", **client)


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def test_its_form_signs_a_browser_in_at_the_console(base: str, sqlite_url: str, tmp_path: Path) -> None:
    url = f"{base}/realms/lake"
    client = Client("console", PUBLIC, SECRET)
    issuer = Issuer(url, AUDIENCE, user_claim=CLAIM, groups_claim="/realm_access/roles", client=client)
    with served(sqlite_url, tmp_path / "w", Principals(issuer=issuer), admins=["root"]) as address:
        with ms.open(sqlite_url) as store:
            store.schemas.create("lake.ice.sales")
            subject = claims(of_ann(base)["access_token"])["sub"]
            store.users.create("lake.ann", external_id=f"{url}#{subject}")
            group = store.groups.create("lake.reader", external_id=f"{url}#reader")
            store.roles.create("lake.reads")
            for right in ("use_catalog", "use_schema"):
                store.roles.grant("lake.reads", right, on="lake.ice")
            store.roles.assign("lake.reads", group)
        browser = Browser(address)
        place = browser.get("login?next=./%3Fpath%3Dlake.ice%26kind%3Dcatalog").headers["location"]
        form = browser.client.get(place)
        action = html.unescape(form.text.partition('action="')[2].partition('"')[0])
        assert action.startswith(url), form.text[:2000]
        # Keycloak's cookies are for TLS; browsers count the loopback interface as safe too
        cookies = "; ".join(one.partition(";")[0] for one in form.headers.get_list("set-cookie"))
        user = {"username": "ann", "password": "password-of-ann"}
        answer = browser.client.post(action, data=user, headers={"Cookie": cookies})
        assert answer.status_code == 302, answer.text[:2000]
        back = answer.headers["location"]
        assert back.startswith(f"{PUBLIC}/console/callback?")
        assert "iss=" in back
        arrived = browser.back(back.partition("?")[2])
        assert arrived.status_code == 200, arrived.text
        page = browser.get("./?path=lake.ice&kind=catalog")
        assert all(name in page.text for name in ("ann", "sales"))
        assert browser.back(back.partition("?")[2]).status_code == 401
        out = browser.client.get(browser.get("leave").headers["location"])
        assert out.headers["location"] == f"{PUBLIC}/console/signin"  # this browser keeps none of its cookies


def test_keycloak_signs_users_and_clients_in(base: str, sqlite_url: str, tmp_path: Path) -> None:
    clock, url = MovedClock(), f"{base}/realms/lake"
    issuer = Issuer(url, AUDIENCE, user_claim=CLAIM, clock=clock)
    with served(sqlite_url, tmp_path / "w", Principals(issuer=issuer), admins=["root"]) as address:

        def status(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{address}/v1/lake.ice/namespaces", headers=headers).status_code

        ann = of_ann(base)
        etl = granted(base, grant_type="client_credentials", client_id="etl", client_secret="secret-of-etl")
        with ms.open(sqlite_url) as store:
            store.schemas.create("lake.ice.sales")
            store.roles.create("lake.reader")
            for right in ("use_catalog", "use_schema"):
                store.roles.grant("lake.reader", right, on="lake.ice")
            for token in (ann["access_token"], etl["access_token"]):
                user = ("lake", claims(token)[CLAIM])
                store.users.create(user, external_id=f"{url}#{claims(token)['sub']}")
                store.roles.assign("lake.reader", user)
        assert status(ann["access_token"]) == 200
        assert [status(ann["id_token"]), status(ann["refresh_token"])] == [401, 401]
        account = {
            "client_id": "etl",
            "client_secret": "secret-of-etl",
            "token_url": f"{url}/protocol/openid-connect/token",
        }
        auth: Any = {"type": "oauth2", "oauth2": account}
        catalog = load_catalog("x", type="rest", uri=address, warehouse="lake.ice", auth=auth)
        assert catalog.list_namespaces() == [("sales",)]

        old = jwt.get_unverified_header(ann["access_token"])["kid"]
        admin = granted(
            base, "master", grant_type="password", client_id="admin-cli", username="admin", password="admin"
        )
        with httpx.Client(headers={"Authorization": f"Bearer {admin['access_token']}"}, timeout=60.0) as client:
            key = {
                "name": "newer",
                "providerId": "rsa-generated",
                "providerType": "org.keycloak.keys.KeyProvider",
                "config": {"priority": ["200"], "algorithm": ["RS256"]},
            }
            assert client.post(f"{base}/admin/realms/lake/components", json=key).status_code == 201
        token = of_ann(base)["access_token"]
        assert jwt.get_unverified_header(token)["kid"] != old
        assert status(token) == 401  # the issuer was asked less than 30 seconds ago
        clock.move(31)
        assert [status(token), status(ann["access_token"])] == [200, 200]
