"""A server whose clients get short-lived keys, with users that have different rights on its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

import metastore as ms
from metastore.serve import Principals, Vendor, tokens_of
from metastore.serve.iceberg.rights import READS, RIGHTS, WRITES
from tests.iceberg.server import served
from tests.iceberg.test_rest import SCHEMA

__all__ = ["DELEGATION", "TABLES", "key_of", "served_users"]

DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
TABLES = "/namespaces/a/tables"


@contextmanager
def served_users(
    url: str, lake: str, folder: Path, vendor: Vendor, properties: Mapping[str, str] | None = None
) -> Iterator[dict[str, httpx.Client]]:
    """Serve the namespace ``a`` and its tables ``t`` and ``t2``: ann reads, bob writes, cy does both."""
    names = {"root": (), "ann": (READS,), "bob": (WRITES,), "cy": (*RIGHTS, "create_table")}
    (folder / "tokens").write_text("".join(f"{user} token-of-{user}\n" for user in names))
    principals = Principals(tokens_of(folder / "tokens"))
    with served(url, lake, principals, properties=properties, credentials=vendor, admins=["root"]) as address:
        clients = {
            user: httpx.Client(
                base_url=f"{address}/v1/lake.ice",
                headers={"Authorization": f"Bearer token-of-{user}", **DELEGATION},
                timeout=60,
            )
            for user in names
        }
        assert clients["root"].post("/namespaces", json={"namespace": ["a"]}).status_code == 200
        for name in ("t", "t2"):
            assert clients["root"].post(TABLES, json={"name": name, "schema": SCHEMA}).status_code == 200
        with ms.open(url) as store:
            for user, rights in list(names.items())[1:]:
                store.users.create(("lake", user))
                store.roles.create(("lake", f"of-{user}"))
                store.roles.assign(("lake", f"of-{user}"), ("lake", user))
                for right in ("use_catalog", "use_schema", *rights):
                    store.roles.grant(("lake", f"of-{user}"), right, on="lake.ice")
        yield clients
        for client in clients.values():
            client.close()


def key_of(answer: httpx.Response) -> dict[str, str]:
    """Return the key of a load."""
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["storage-credentials"]
    assert found["config"] == answer.json().get("config", found["config"])
    config: dict[str, str] = found["config"]
    return config
