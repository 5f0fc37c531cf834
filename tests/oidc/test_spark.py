"""Spark signs in with client credentials, and renews its token during a run that is longer."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from metastore.serve import Principals
from metastore.serve.oidc import Issuer
from tests.iceberg.server import served
from tests.iceberg.test_spark import start
from tests.oidc.issuer import AUDIENCE, MovedClock, OwnIssuer

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

LIFE = 5


def test_spark_renews_its_token(sqlite_url: str, tmp_path: Path) -> None:
    clock = MovedClock()
    clock.move(29)  # so that a token is over a second after its end: 30 seconds are tolerated
    with OwnIssuer() as own:
        own.life = LIFE
        with served(sqlite_url, tmp_path / "w", Principals(issuer=Issuer(own.url, AUDIENCE, clock=clock))) as address:
            account = {"oauth2_server_uri": f"{own.url}/token", "credential": "etl:secret-of-etl"}
            began = time.monotonic()
            run = start(address, **account, token_exchange_enabled="false", **{"rest.auth.type": "oauth2"})
            out, errors = run.communicate(timeout=300)
            took = time.monotonic() - began
    said = dict(json.loads(line) for line in out.splitlines())
    assert "DROP NAMESPACE ice.a.n" in said, errors[-3000:]
    assert took > 2 * LIFE
    assert own.granted > 2
