"""Gravitino's probes, and who a client is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import httpx

import metastore as ms
from metastore.serve import Principals, TokenFile, application

PROBES = (("", ["httpServer", "entityStore"]), ("/live", ["httpServer"]), ("/ready", ["entityStore"]))


def test_probes_and_who_asks(tmp_path: Path, sqlite_url: str) -> None:
    """A probe needs no token; a client that has one learns its name."""
    (tmp_path / "tokens").write_text("ann t0ken-of-sixteen-letters\n")
    store = ms.open(sqlite_url)
    app = application(store, principals=Principals(TokenFile(tmp_path / "tokens")))

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            for path, checks in PROBES:
                answer = await client.get(f"/api/health{path}")
                body = answer.json()
                assert (answer.status_code, body["code"], body["status"]) == (200, 0, "UP")
                assert [(one["name"], one["status"]) for one in body["checks"]] == [(name, "UP") for name in checks]
            assert (await client.get("/api/authn/me")).status_code == 401
            me = await client.get("/api/authn/me", headers={"authorization": "Bearer t0ken-of-sixteen-letters"})
            assert me.json() == {"code": 0, "principal": "ann"}
            store.close()
            assert (await client.get("/api/health/live")).status_code == 200
            for path in ("", "/ready"):
                answer = await client.get(f"/api/health{path}")
                assert (answer.status_code, answer.json()["status"]) == (503, "DOWN")

    asyncio.run(ask())
