"""A random history: users make at most one table or view in each folder that the server chose, for ever."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

import metastore as ms
from metastore import Store
from metastore.clock import SYSTEM
from metastore.pyiceberg import commits, tables, views
from metastore.serve import Principals, tokens_of
from tests.iceberg.server import served
from tests.iceberg.test_confined import VIEW
from tests.iceberg.test_rest import MADE, SCHEMA

USERS, SPACES, NAMES = ("ann", "bob"), "ab", "tuv"
RIGHTS = ("use_schema", "select_table", "select_view", "modify_table", "create_table", "create_view")
WORDS = (*["stage"] * 3, *["make"] * 8, *["repeat"] * 6, *["rename"] * 4, *["drop"] * 4, "purge")
HOUR = 3600 * 1_000_000


class History:
    """One random history, and who has had each folder."""

    def __init__(self, seed: int, url: str, lake: Path, client: httpx.Client) -> None:
        self.rng, self.url, self.lake, self.client = random.Random(seed), url, lake, client
        self.staged: list[tuple[str, str, str, dict[str, Any]]] = []
        self.sent: list[tuple[str, str, dict[str, Any], str | None]] = []
        self.owners: dict[str, int] = {}
        self.live: list[tuple[str, str, str]] = []
        self.fails, self.ahead = False, 0

    def send(self, user: str, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """Send one request of a user; return the answer."""
        headers = {"Authorization": f"Bearer token-of-{user}"} | ({"Idempotency-Key": key} if key else {})
        return self.client.request(method, f"/v1/lake.ice{path}", json=body, headers=headers)

    def step(self) -> None:
        """Do one random thing."""
        rng = self.rng
        word, user, space, name = (rng.choice(one) for one in ((*WORDS, "gc", "later"), USERS, SPACES, NAMES))
        kind = "table"
        if word in ("rename", "drop", "purge") and self.live:
            kind, space, name = rng.choice(self.live)
        if word == "stage":
            answer = self.send(
                user, "POST", f"/namespaces/{space}/tables", {"name": name, "schema": SCHEMA, "stage-create": True}
            )
            if answer.status_code == 200:
                self.staged.append((user, space, name, answer.json()["metadata"]))
        elif word == "make" and self.staged:
            self._make()
        elif word == "repeat" and self.sent:
            self.send(*self._repeated())
        elif word == "rename":
            to = {"namespace": [rng.choice(SPACES)], "name": rng.choice(NAMES) + rng.choice(("", "x", "y"))}
            source = {"namespace": [space], "name": name}
            self.send("root", "POST", f"/{kind}s/rename", {"source": source, "destination": to})
        elif word in ("drop", "purge"):
            purge = "?purgeRequested=true" if word == "purge" and kind == "table" else ""
            self.send("root", "DELETE", f"/namespaces/{space}/{kind}s/{name}{purge}")
        elif word == "later":
            self.ahead += rng.choice((1, 6, 12, 25)) * HOUR
        elif word == "gc":
            with ms.open(self.url) as store:
                store.gc(retention=timedelta(days=1))

    def _repeated(self) -> tuple[str, str, str, dict[str, Any], str | None]:
        user, path, body, key = self.rng.choice(self.sent[-6:])
        return user, "POST", path, body, None if self.rng.random() < 0.2 else key

    def _make(self) -> None:
        rng = self.rng
        user, space, name, metadata = rng.choice(self.staged[-4:])
        user = user if rng.random() < 0.95 else rng.choice(USERS)
        place = metadata["location"] + rng.choice(("", "", "", "/", "/sub"))
        updates = [*MADE, {"action": "set-location", "location": place}]
        creation = {"requirements": [{"type": "assert-create"}], "updates": updates}
        two = [{"identifier": {"namespace": [space], "name": one}, **creation} for one in (name, rng.choice(NAMES))]
        doors: list[tuple[str, dict[str, Any]]] = [
            ("tables", {"name": name, "schema": SCHEMA, "location": place}),
            (f"tables/{name}", creation),
            ("views", {**VIEW, "name": name, "location": place}),
            *self._registered(name, metadata),
        ]
        path, body = rng.choice(doors)
        path = f"/namespaces/{space}/{path}"
        if rng.random() < 0.25:
            path, body = "/transactions/commit", {"table-changes": two[: rng.choice((1, 2))]}
        key = str(UUID(int=rng.getrandbits(128), version=4)) if rng.random() < 0.4 else None
        self.fails = rng.random() < 0.3
        self.send(user, "POST", path, body, key)
        self.fails = False
        self.sent.append((user, path, body, key))

    def _registered(self, name: str, metadata: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Write a file into a folder, which may name the location of another one."""
        other = self.rng.choice(self.staged[-4:])[3]["location"] if self.rng.random() < 0.4 else metadata["location"]
        log = [{"timestamp-ms": 1, "version-id": 1}]
        view = {"view-uuid": str(UUID(int=1)), "format-version": 1, "schemas": [SCHEMA], "current-version-id": 1}
        view |= {"versions": [VIEW["view-version"]], "version-log": log, "properties": {}}
        for door, doc in (("register", metadata), ("register-view", view)):
            unique = UUID(int=self.rng.getrandbits(128), version=4)
            file = Path(metadata["location"].removeprefix("file://")) / "metadata" / f"00000-{unique}.metadata.json"
            if file.parent.exists():
                file.write_text(json.dumps({**doc, "location": other}))
                yield door, {"name": name, "metadata-location": file.as_uri()}

    def judge(self, store: Store) -> None:
        """Check that each folder has only ever been that of one table or view."""
        self.live = []
        for space in SPACES:
            for entity in (*store.tables.list(f"lake.ice.{space}"), *store.views.list(f"lake.ice.{space}")):
                self.live.append((entity.kind, space, entity.name))
                places = [entity.properties["metadata_location"], getattr(entity, "location", None)]
                for place in filter(None, places):
                    folder = "/".join(place.partition(f"{self.lake}/")[2].split("/")[:2])
                    assert self.owners.setdefault(folder, entity.id) == entity.id, (folder, entity.path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_folder_has_one_table_for_ever(
    seed: int, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, names = tmp_path / "lake", ("root", *USERS)
    (tmp_path / "tokens").write_text("".join(f"{user} token-of-{user}\n" for user in names))
    known = Principals(tokens_of(tmp_path / "tokens"))
    with (
        served(sqlite_url, lake, known, admins=["root"]) as address,
        httpx.Client(base_url=address, timeout=60) as client,
        ms.open(sqlite_url) as trusted,
    ):
        history = History(seed, sqlite_url, lake, client)
        for space in SPACES:
            assert history.send("root", "POST", "/namespaces", {"namespace": [space]}).status_code == 200
        for user in USERS:
            trusted.users.create(("lake", user))
            trusted.roles.create(("lake", f"of-{user}"))
            trusted.roles.grant(("lake", f"of-{user}"), "use_catalog", on="lake.ice")
            for privilege in RIGHTS:
                for space in SPACES:
                    trusted.roles.grant(("lake", f"of-{user}"), privilege, on=f"lake.ice.{space}", kind="schema")
            trusted.roles.assign(("lake", f"of-{user}"), ("lake", user))
        micros, new_id = type(SYSTEM).micros, type(SYSTEM).operation_id
        monkeypatch.setattr(type(SYSTEM), "micros", lambda clock: micros(clock) + history.ahead)
        monkeypatch.setattr(
            type(SYSTEM), "operation_id", lambda clock: UUID(int=new_id(clock).int + (history.ahead // 1000 << 80))
        )
        for module, name in ((commits, "write_metadata"), (tables, "write_metadata"), (views, "_write")):
            write = getattr(module, name)

            def away(*arguments: Any, write: Any = write) -> Any:
                if history.fails:
                    raise ConnectionError("the bucket does not answer")
                return write(*arguments)

            monkeypatch.setattr(module, name, away)
        for _ in range(150):
            history.step()
            history.judge(trusted)
    assert len(history.owners) > 3
