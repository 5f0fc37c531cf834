"""Two servers on one database: clients of both create in one schema at once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import metastore as ms
from tests.gravitino.conftest import Api, serving

S = "/metalakes/lake/catalogs/cat/schemas/s"


def test_each_name_is_created_once_and_no_create_conflicts(url: str) -> None:
    with serving(ms.open(url)) as one, serving(ms.open(url)) as two, ThreadPoolExecutor(8) as clients:
        one.ask("POST", "/metalakes", {"name": "lake"})
        one.ask("POST", "/metalakes/lake/catalogs", {"name": "cat", "type": "model"})
        one.ask("POST", "/metalakes/lake/catalogs/cat/schemas", {"name": "s"})

        def create(work: tuple[Api, str]) -> tuple[str, int]:
            server, name = work
            answer = server.client.post(f"/api{S}/models", json={"name": name})
            return name, answer.json()["code"]

        names = [f"m{i:02}" for i in range(20)]
        answers = Counter(clients.map(create, [(server, name) for name in names for server in (one, two)]))
        assert answers == Counter({(name, code): 1 for name in names for code in (0, 1004)})
        for server in (one, two):
            assert [found["name"] for found in server.ask("GET", f"{S}/models")["identifiers"]] == names
        assert list(one.store.verify()) == []
