"""Each client gets a key of Azure or of Google that ends soon, and opens one table, by its user's rights on it.

No cloud is here. The clouds' own libraries send their requests to token services of the test, which compares them with
the documented form; what a key opens is judged by our own reading of the documentation.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote

import httpx
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pyiceberg.catalog.rest import RestCatalog

import metastore as ms
from metastore.clock import SYSTEM
from metastore.serve import AzureSas, CannotVend, GcsTokens, Vended
from metastore.serve.iceberg import kept_keys
from metastore.serve.iceberg.kept_keys import Made
from metastore.serve.iceberg.rights import READS, RIGHTS, WRITES
from metastore.serve.iceberg.short_lived import ShortLived
from tests.iceberg.local_files import ROOT, LocalFiles
from tests.iceberg.server import served
from tests.iceberg.test_limits import certificate
from tests.iceberg.test_rest import SCHEMA
from tests.iceberg.vending_users import DELEGATION, TABLES, key_of, served_users
from tests.oidc.issuer import private_key
from tests.servers import cel, sas
from tests.servers.clouds import ACCOUNT_KEY, OBJECT, TENANT, Asked, TokenServices
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

SECRET = "the-secret-of-the-application"
HOST = "lakefiles.dfs.core.windows.net"
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
Vendors = AzureSas | GcsTokens


@dataclass(frozen=True)
class Cloud:
    """A cloud: its warehouse, the token in a key, what a key opens, and how the properties of a key are called."""

    lake: str
    vendor: Callable[[TokenServices], Vendors]
    token: str
    ends: str
    renewal: str
    opens: Callable[[dict[str, str], Asked, str, str], bool]
    """Whether a key allows an operation on a path below the container or bucket; ``asked``: the request for it."""


def azure(services: TokenServices) -> AzureSas:
    own = {"adls.tenant-id": TENANT, "adls.client-id": "app", "adls.client-secret": "secret:env:APP_SECRET"}
    more = {"adls.dfs-storage-authority": ".dfs.core.windows.net", "adls.account-key": "secret:env:APP_SECRET"}
    return AzureSas("lakefiles", properties={**own, **more}, endpoint=services.url, duration=900)


def opens_on_azure(key: dict[str, str], asked: Asked, operation: str, path: str) -> bool:
    now = datetime.fromtimestamp(SYSTEM.micros() / 1e6, UTC).strftime(FORMAT)
    return sas.allows(key["adls.sas-token"], ACCOUNT_KEY, operation, "lakefiles", f"files/{path}", now)


def google(services: TokenServices) -> GcsTokens:
    properties = {"gcs.project-id": "p", "gcs.oauth2.token": "secret:env:APP_SECRET"}
    return GcsTokens("files", properties=properties, endpoint=f"{services.url}/v1/token")


def opens_on_google(key: dict[str, str], asked: Asked, operation: str, path: str) -> bool:
    permission = {"read": "get", "write": "create"}.get(operation, operation)
    return cel.allows(json.loads(unquote(asked.form["options"])), permission, "files", path)


AZURE = Cloud(
    f"abfss://files@{HOST}/lake",
    azure,
    f"adls.sas-token.{HOST}",
    f"adls.sas-token-expires-at-ms.{HOST}",
    "adls.refresh-credentials-endpoint",
    opens_on_azure,
)
GOOGLE = Cloud(
    "gs://files/lake",
    google,
    "gcs.oauth2.token",
    "gcs.oauth2.token-expires-at",
    "gcs.oauth2.refresh-credentials-endpoint",
    opens_on_google,
)
EACH = pytest.mark.parametrize("cloud", [AZURE, GOOGLE], ids=["azure", "google"])


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServices]:
    (tmp_path / "tls").mkdir()
    with TokenServices(certificate(tmp_path / "tls", "services")) as services:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(services.certificate[0]))
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", services.url)
        monkeypatch.setenv("APP_SECRET", SECRET)
        pem = private_key("rsa").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {
            "type": "service_account",
            "client_email": "server@p.iam.gserviceaccount.com",
            "token_uri": f"{services.url}/of-a-service-account",
            "private_key": pem,
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        yield services


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the properties of a server whose files are in a folder."""
    return {"py-io-impl": f"{LocalFiles.__module__}.LocalFiles", ROOT: str(tmp_path / "files")}


@pytest.fixture
def users(
    cloud: Cloud, sqlite_url: str, tmp_path: Path, services: TokenServices, files: dict[str, str]
) -> Iterator[dict[str, httpx.Client]]:
    with served_users(sqlite_url, cloud.lake, tmp_path, cloud.vendor(services), files) as clients:
        yield clients


def places(users: Mapping[str, httpx.Client], cloud: Cloud) -> list[str]:
    """Return the paths of the tables ``t`` and ``t2`` in their container or bucket."""
    found = [users["root"].get(f"{TABLES}/{name}").json()["metadata"]["location"] for name in ("t", "t2")]
    return [place.split("/", 3)[3] for place in found]


@EACH
def test_a_stolen_key(cloud: Cloud, users: dict[str, httpx.Client], services: TokenServices) -> None:
    """It does with the table what its user may do, and nothing elsewhere."""
    own, other = places(users, cloud)
    services.asked.clear()
    keys = {user: key_of(users[user].get(f"{TABLES}/t")) for user in ("ann", "bob", "cy")}
    asked = dict(zip(keys, services.of_keys(), strict=True))

    def who(operation: str, path: str) -> str:
        return "".join(user[0] for user in keys if cloud.opens(keys[user], asked[user], operation, path))

    for inside in (f"{own}/data/1", f"{own}/metadata/x.json"):
        assert (who("read", inside), who("list", inside)) == ("ac", "ac")
        assert (who("write", inside), who("create", inside), who("delete", inside)) == ("bc", "bc", "bc")
    for outside in (f"{other}/data/1", f"{own}2/1", f"{own}.bak/1", "lake/1", "1", f"x/{own}/1"):
        for operation in ("read", "list", "write", "create", "delete"):
            assert who(operation, outside) == "", (operation, outside)


@EACH
def test_a_key_is_kept_for_half_of_its_life_and_never_given_to_who_lost_the_right(
    cloud: Cloud,
    users: dict[str, httpx.Client],
    services: TokenServices,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, clock, half = f"{TABLES}/t", _Later(), 450.0 if cloud is AZURE else 1800.0
    monkeypatch.setattr(kept_keys, "SYSTEM", clock)
    caplog.set_level(logging.INFO, "metastore.audit")
    services.asked.clear()
    with ThreadPoolExecutor(4) as threads:
        found = [key_of(one) for one in threads.map(users["cy"].get, [path] * 4)]
    first = found[0]
    assert found == [first] * 4
    assert len(services.of_keys()) == 1
    assert abs(int(first[cloud.ends]) / 1000 - SYSTEM.micros() / 1e6 - 2 * half) < 100
    others = [
        key_of(users[user].get(f"{TABLES}/{table}")) for user, table in (("cy", "t2"), ("ann", "t"), ("bob", "t"))
    ]
    assert len({one[cloud.token] for one in [first, *others]}) == 4
    told = [json.loads(one.getMessage()) for one in caplog.records if one.name == "metastore.audit"]
    assert [one["right"] for one in told] == ["select_table, modify_table"] * 5 + [READS, WRITES]
    endpoint = first[cloud.renewal]
    assert endpoint == "v1/lake.ice/namespaces/a/tables/t/credentials"
    again = str(users["cy"].base_url).removesuffix("v1/lake.ice/") + endpoint
    plain = {"Authorization": "Bearer token-of-cy"}  # Java's clients send no header of delegation when they renew
    clock.ahead = half - 10
    assert key_of(httpx.get(again, headers=plain)) == first
    clock.ahead = half + 10
    assert len(services.of_keys()) == 4
    assert key_of(httpx.get(again, headers=plain)).keys() == first.keys()
    assert len(services.of_keys()) == 5
    own = places(users, cloud)[0]
    with ms.open(sqlite_url) as store:
        assert store.roles.revoke(("lake", "of-cy"), WRITES, on="lake.ice")
        reader = key_of(httpx.get(again, headers=plain))
        asked = services.of_keys()[-1]
        assert cloud.opens(reader, asked, "read", f"{own}/1")
        assert not cloud.opens(reader, asked, "write", f"{own}/1")
        assert store.roles.revoke(("lake", "of-cy"), READS, on="lake.ice")
    for answer in (httpx.get(again, headers=plain), users["cy"].get(path)):
        assert answer.status_code == 404
        assert cloud.token not in answer.text


class _Later:
    """The system's clock, with a monotonic one that is ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return SYSTEM.monotonic() + self.ahead


@pytest.mark.parametrize("cloud", [AZURE], ids=["azure"])
def test_the_fields_of_a_sas(cloud: Cloud, users: dict[str, httpx.Client], services: TokenServices) -> None:
    own = places(users, cloud)[0]
    key = key_of(users["cy"].get(f"{TABLES}/t"))
    said = sas.fields(key["adls.sas-token"])
    (asked,) = services.of_keys()[-1:]
    assert (asked.path, asked.query["restype"], asked.query["comp"]) == ("/", "service", "userdelegationkey")
    for name, begin, end in (("SAS", "st", "se"), ("delegation key", "skt", "ske")):
        begins, ends = (datetime.strptime(said[one], FORMAT).replace(tzinfo=UTC).timestamp() for one in (begin, end))
        assert ends - begins == 1200, name
        assert abs(ends - 900 - SYSTEM.micros() / 1e6) < 60, name
    assert (said["sp"], said["sr"], said["sdd"], said["spr"]) == ("racwdl", "d", str(own.count("/") + 1), "https")
    assert (said["skoid"], said["sktid"], said["sks"]) == (OBJECT, TENANT, "b")
    assert not {"sip", "si", "ses", "saoid", "suoid"}.intersection(said)
    tokens = {"adls.sas-token", f"adls.sas-token.{HOST}", "adls.sas-token.lakefiles"}
    until = {f"adls.sas-token-expires-at-ms.{HOST}", "adls.sas-token-expires-at-ms.lakefiles"}
    more = {"adls.account-name", "adls.dfs-storage-authority", "adls.refresh-credentials-endpoint"}
    assert key.keys() == tokens | until | more, "no identity, which a file system would use in place of the key"
    assert len({key[one] for one in tokens}) == len({key[one] for one in until}) == 1
    assert said["se"] == datetime.fromtimestamp(int(key[min(until)]) / 1000, UTC).strftime(FORMAT)


@pytest.mark.parametrize("cloud", [GOOGLE], ids=["google"])
def test_the_form_of_an_exchange(cloud: Cloud, users: dict[str, httpx.Client], services: TokenServices) -> None:
    key = key_of(users["cy"].get(f"{TABLES}/t"))
    form = services.of_keys()[-1].form
    kind = "urn:ietf:params:oauth:token-type:access_token"
    assert form.pop("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert (form.pop("subject_token_type"), form.pop("requested_token_type")) == (kind, kind)
    assert form.pop("subject_token") in services.given
    assert form.keys() == {"options"}
    assert key[cloud.token].startswith("downscoped-"), "not the server's own token"
    assert key.keys() == {cloud.token, cloud.ends, cloud.renewal, "gcs.project-id"}
    own = [one for one in services.asked if one.path == "/of-a-service-account"]
    users["ann"].get(f"{TABLES}/t")
    assert len([one for one in services.asked if one.path == "/of-a-service-account"]) == len(own) == 1


@pytest.mark.parametrize("says_life", [True, False])
def test_a_token_of_google_lives_no_longer_than_the_server_s_own(services: TokenServices, says_life: bool) -> None:
    services.life, services.says_life = 600, says_life  # such as the metadata server's: less than half an hour
    vendor = google(services)
    key = vendor.vend("gs://files/lake/t", "ann")
    assert key is not None
    left = int(key.config[GOOGLE.ends]) / 1000 - SYSTEM.micros() / 1e6
    assert 0 < left <= 601
    (kept,) = vendor._kept._kept.values()
    assert kept.ends - SYSTEM.monotonic() <= 301
    services.life = 3600
    assert vendor.vend("gs://files/lake/t2", "ann") is not None
    assert len(services.given) == 2, "a token that ends soon is not exchanged again"


@EACH
def test_pyiceberg_takes_the_key(cloud: Cloud, sqlite_url: str, services: TokenServices, files: dict[str, str]) -> None:
    with served(sqlite_url, cloud.lake, properties=files, credentials=cloud.vendor(services)) as address:
        catalog = RestCatalog("x", uri=address, warehouse="lake.ice", **files)
        catalog.create_namespace("a")
        table = catalog.create_table("a.t", pa.schema([("n", pa.int64())]))
        renewed = catalog.load_credentials("a.t", table.metadata_location)
        assert renewed
        assert renewed.items() <= table.io.properties.items()
        assert renewed.items() <= catalog.load_table("a.t").io.properties.items()


@EACH
@pytest.mark.parametrize("refusal", [(403, "AuthorizationFailure"), (500, "InternalError"), (200, "nonsense")])
def test_a_token_service_that_refuses(
    cloud: Cloud,
    refusal: tuple[int, str],
    sqlite_url: str,
    services: TokenServices,
    files: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A load that asks for a key is 503, and says no secret; a create has none; others go on."""
    caplog.set_level(logging.DEBUG)
    status, code = refusal
    text = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"
    if cloud is GOOGLE:
        text = json.dumps({"error": code, "error_description": SECRET})
    services.refuses = (status, text)
    with (
        served(sqlite_url, cloud.lake, properties=files, credentials=cloud.vendor(services)) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=30) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        made = client.post(TABLES, json={"name": "t", "schema": SCHEMA}, headers=DELEGATION)
        assert (made.status_code, made.json()["config"]) == (200, {})
        answer = client.get(f"{TABLES}/t", headers=DELEGATION)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.get(f"{TABLES}/t").status_code == 200
        assert "credentials for lake.ice cannot be made" in caplog.text
        if status != 200:
            assert code in caplog.text
        services.refuses = None
        key = key_of(client.get(f"{TABLES}/t", headers=DELEGATION))
    for secret in (SECRET, ACCOUNT_KEY, key[cloud.token], *services.given):
        assert all(secret not in text for text in (made.text, answer.text, caplog.text))


@EACH
def test_a_token_service_that_says_nothing(
    cloud: Cloud, services: TokenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends soon, and so does the call: a service that is slow gets no second attempt."""
    monkeypatch.setattr(kept_keys, "_PATIENCE", 0.3)
    services.waits = Event()
    vendor = cloud.vendor(services)
    with pytest.raises(CannotVend, match=r"did not answer within 0\.3 s") as error:
        vendor.vend(f"{cloud.lake}/t", "ann")
    assert SECRET not in str(error.value)
    assert wait_until(lambda: vendor._kept._open == 0, 15)
    assert len(services.of_keys()) == 1


@EACH
def test_what_is_not_of_the_warehouse_gets_no_key(
    cloud: Cloud, services: TokenServices, caplog: pytest.LogCaptureFixture
) -> None:
    vendor = cloud.vendor(services)
    place = cloud.lake.removesuffix("/lake")
    elsewhere = "lakefiles" if cloud is AZURE else "files"
    others = [place, f"{place}/", cloud.lake.replace(elsewhere, "other"), "s3://files/lake/t"]
    for location in (*others, f"{cloud.lake}/a/../../b", f"{cloud.lake}/a%2Fb", f"{cloud.lake}?x"):
        caplog.clear()
        assert vendor.vend(location, "ann") is None, location
        assert "no key opens" in caplog.text
    assert services.asked == []


@EACH
def test_a_location_outside_of_the_warehouse_is_not_even_asked_for(
    cloud: Cloud, sqlite_url: str, services: TokenServices, files: dict[str, str]
) -> None:
    """Another container, bucket or account than that of the warehouse, and a folder that begins like its own."""
    place = cloud.lake.removesuffix("/lake")
    folders = [place.replace("files", "other", 1), f"{cloud.lake}2", place.replace("lakefiles", "twofiles")]
    credentials = cloud.vendor(services)
    with (
        served(sqlite_url, cloud.lake, properties=files, credentials=credentials, allowed=folders) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=30, headers=DELEGATION) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        for number, folder in enumerate(folders):
            made = client.post(TABLES, json={"name": f"t{number}", "schema": SCHEMA, "location": f"{folder}/x"})
            assert made.status_code == 200, made.text
            assert made.json()["config"] == {}
            assert client.get(f"{TABLES}/t{number}").json()["config"] == {}
        assert services.asked == []


@EACH
def test_a_key_is_kept_for_one_user_table_and_set_of_rights(cloud: Cloud, services: TokenServices) -> None:
    vendor, place = cloud.vendor(services), f"{cloud.lake}/t"
    wanted = [(place, "ann", [READS]), (place, "bob", [READS]), (place, "ann", RIGHTS), (f"{place}2", "ann", [READS])]
    keys = [vendor.vend(*one) for one in wanted * 2]
    assert len({key.config[cloud.token] for key in keys if key is not None}) >= 3
    assert keys[:4] == keys[4:]
    assert len(services.of_keys()) == 4


@EACH
def test_a_vendor_shows_no_secret(cloud: Cloud, services: TokenServices) -> None:
    vendor = cloud.vendor(services)
    key = vendor.vend(f"{cloud.lake}/t", "ann")
    assert isinstance(key, Vended)
    for shown in (repr(key), repr(vendor), repr(vendor._kept), repr(Made(key.config, 1.0)), repr(replace(key))):
        for secret in (SECRET, ACCOUNT_KEY, key.config[cloud.token], *services.given):
            assert secret not in shown


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: AzureSas("lake.blob.core.windows.net"), "3 to 24 small letters"),
        (lambda: AzureSas("a"), "3 to 24 small letters"),
        (lambda: AzureSas("lake", duration=60), "15 minutes"),
        (lambda: AzureSas("lake", properties={"adls.client-id": "app"}), "give all three"),
        (lambda: AzureSas("lake", properties={"adls.sas-token.lake": SECRET}), "secret:env:NAME"),
        (lambda: AzureSas("lake", properties={"adls.token": SECRET}), "secret:env:NAME"),
        (lambda: GcsTokens("gs://lake"), "a bucket is"),
        (lambda: GcsTokens("lake", properties={"gcs.oauth2.token": SECRET}), "secret:env:NAME"),
    ],
)
def test_what_the_operator_writes_is_checked(make: Callable[[], ShortLived[Any]], word: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=word) as error:
        make()
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("missing", "make", "extra"),
    [
        ("azure.identity", lambda: AzureSas("lake"), "azure"),
        ("azure.storage.filedatalake", lambda: AzureSas("lake"), "azure"),
        ("google.auth.transport.requests", lambda: GcsTokens("lake"), "gcs"),
    ],
)
def test_an_extra_that_is_not_there_is_named(
    missing: str, make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ms.InvalidArgument, match=rf"pip install 'versioned-metastore\[{extra}\]'") as error:
        make()
    assert "\n" not in str(error.value)


def test_an_account_of_another_cloud_is_named_by_its_host(services: TokenServices) -> None:
    host = "lakefiles.dfs.core.chinacloudapi.cn"
    own = {"adls.tenant-id": TENANT, "adls.client-id": "app", "adls.client-secret": "secret:env:APP_SECRET"}
    vendor = AzureSas(host, properties=own, endpoint=services.url)
    key = vendor.vend(f"abfss://files@{host}/lake/t", "ann")
    assert key is not None
    assert f"adls.sas-token.{host}" in key.config
    assert vendor.vend(f"abfss://files@{HOST}/lake/t", "ann") is None
    assert vendor.properties()["adls.account-name"] == "lakefiles"
