"""``metastore lease ls|show|audit|break``: what they say, for people and for programs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli import app
from tests.cli.test_cli import call, document, here, refused
from tests.concurrency.raw import rows
from tests.servers.process import wait_until

pytestmark = [pytest.mark.each_run_on("sqlite"), pytest.mark.one_in(3)]  # a command knows nothing of the database

Run = Callable[..., tuple[int, str, str]]
NAMES = ["a.b `c`", "[red]x[/red]", "nightly compaction", "-rf", "Ωmega \u202e"]


@pytest.fixture
def run(url: str, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the database; return its code and what it wrote."""

    def call_here(*words: str) -> tuple[int, str, str]:
        code = app.run(["--url", url, "lease", *words])
        return (code, *capfd.readouterr())

    return call_here


def expired(store: ms.Store, url: str, name: str) -> None:
    """Acquire a lease and let its time go by, by the database's clock."""
    store.leases.acquire(name, owner="late")
    gone = f"UPDATE lease SET expires_at = expires_at - 60000000 WHERE name = '{name}' RETURNING token"
    assert rows(url, gone) == [(1,)]
    assert store.leases.holder(name) is None


@pytest.fixture
def held(url: str) -> Iterator[ms.Store]:
    """Give a store in which the lease "x" was held, taken over, given back, broken, and is held, with a commit."""
    with ms.open(url, principal="tester") as store:
        expired(store, url, "x")
        store.leases.acquire("x", owner="second").release()
        store.leases.acquire("x", owner="third")
        store.leases.break_("x")
        with store.leases.acquire("x", owner="[red]job[/red]", ttl=600) as lease:
            store.metalakes.create("lake", lease=lease)
            yield store


def said(found: tuple[int, str, str], code: int = 0) -> Any:
    assert (found[0], found[2]) == (code, "")
    return json.loads(found[1])


def test_ls(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("ls") == (0, "Lease  Owner  Token  Acquired (UTC)  Expires (UTC)  Waiting\n", "")
    assert said(run("ls", "--json")) == {"leases": []}
    with ms.open(url) as store:
        for name in NAMES:
            store.leases.acquire(name, owner=f"owner of {name}", ttl=600)
        expired(store, url, "over")
        holders = {holder.name: holder for holder in store.leases.list()}
    code, out, errors = run("ls")
    assert (code, errors) == (0, "")
    rows = {line.split("  ")[0]: line.split("  ") for line in out.splitlines()[1:]}
    assert list(rows) == sorted([*NAMES[:-1], "Ωmega \\u202e", "over"])
    for name, row in rows.items():
        words = [word.strip() for word in row if word]
        assert words[1] == ("late" if name == "over" else f"owner of {name}")
        assert (words[2], words[-1]) == ("1", "0")
        assert (words[4] == "expired") == (name == "over")
    found = {row["name"]: row for row in said(run("ls", "--json"))["leases"]}
    assert list(found) == list(holders)
    for name, row in found.items():
        expected = {field: getattr(holders[name], field) for field in ("name", "token", "owner", "incarnation")}
        assert row == {
            **expected,
            "acquired_at": holders[name].acquired_at.isoformat(),
            "expires_at": holders[name].expires_at.isoformat(),
            "expired": name == "over",
            "waiting": 0,
        }


def test_who_waits_is_counted(run: Run, held: ms.Store) -> None:
    waits = threading.Thread(target=lambda: held.leases.acquire("x", owner="waiter", timeout=60).release())
    waits.start()
    assert wait_until(lambda: said(run("ls", "--json"))["leases"][0]["waiting"] == 1, 20)
    assert run("ls")[1].splitlines()[1].endswith(" 1")
    assert said(run("show", "x", "--json"))["holder"]["waiting"] == 1
    assert "waiting  " in run("show", "x")[1]
    assert said(run("break", "x", "--json"))["broken"]
    waits.join(20)
    assert run("audit", "x")[1].splitlines()[-1].endswith(" release token 9 waiter by tester")


def test_show(run: Run, held: ms.Store) -> None:
    code, out, errors = run("show", "x")
    assert (code, errors) == (0, "")
    shown = out.splitlines()
    assert shown[0] == "lease x"
    facts = dict(line.split("  ", 1) for line in shown[1:] if not line or not line[0].isdigit() if "  " in line)
    assert facts["owner"].strip() == "[red]job[/red]"
    assert facts["token"].strip() == "6"
    assert facts["expires"].strip().endswith(" UTC, unless it is renewed")
    assert "waiting" not in facts
    assert shown[-1].endswith("commit token 6 [red]job[/red] lake by tester")
    found = said(run("show", "x", "--json"))
    assert (found["name"], found["holder"]["owner"], found["holder"]["token"]) == ("x", "[red]job[/red]", 6)
    assert [event["action"] for event in found["events"]] == ACTIONS


ACTIONS = ["acquire", "takeover", "release", "acquire", "break", "acquire", "commit"]


def test_show_what_nobody_holds(run: Run, held: ms.Store, url: str) -> None:
    assert run("show", "unknown") == (0, "lease unknown\nnobody holds it\n", "")
    assert said(run("show", "unknown", "--json")) == {"name": "unknown", "holder": None, "events": []}
    held.leases.break_("x")
    assert run("show", "x")[1].splitlines()[:2] == ["lease x", "nobody holds it"]
    expired(held, url, "over")
    assert "expired, the next process that asks gets it" in " ".join(run("show", "over")[1].split())
    assert said(run("show", "over", "--json"))["holder"]["expired"] is True


def test_show_has_the_newest_events_only(run: Run, url: str) -> None:
    with ms.open(url) as store:
        for _ in range(7):
            store.leases.acquire("x").release()
    events = said(run("show", "x", "--json"))["events"]
    assert [event["token"] for event in events] == list(range(5, 15))


def test_audit(run: Run, held: ms.Store) -> None:
    code, out, errors = run("audit", "x", "--json")
    assert (code, errors) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    events = list(held.leases.audit("x"))
    assert [event["action"] for event in found] == ACTIONS
    assert [event["token"] for event in found] == [1, 2, 3, 4, 5, 6, 6]
    for row, event in zip(found, events, strict=True):
        assert row == {
            "action": event.action,
            "token": event.token,
            "time": event.time.isoformat(),
            "owner": event.owner,
            "incarnation": event.incarnation,
            "principal": "tester",
            "operation_id": str(event.operation_id),
            "position": event.position,
            "path": event.path,
        }
    written = run("audit", "x")[1].splitlines()
    assert [line.split()[3] for line in written] == ACTIONS
    assert [line.split()[0] for line in written] == [event.position for event in events]
    assert written[1].endswith(" takeover token 2 second by tester")
    assert (run("audit", "unknown"), run("audit", "unknown", "--json")) == ((0, "", ""), (0, "", ""))


def test_break(run: Run, held: ms.Store, url: str) -> None:
    code, out, errors = run("break", "x")
    assert (code, errors) == (0, "")
    assert out.startswith("The lease x is broken: [red]job[/red] had it with the token 6, since ")
    assert held.leases.holder("x") is None
    anew = held.leases.acquire("x", owner="[red]job[/red]")  # not the broken one once more
    assert (anew.token, anew.release()) == (8, True)
    for name in ("x", "unknown"):
        code, out, errors = run("break", name)
        assert (code, out, errors) == (1, "", f"metastore: no process holds the lease '{name}'\n")
        assert said(run("break", name, "--json"), 1) == {"name": name, "broken": False, "holder": None}
    expired(held, url, "over")
    found = said(run("break", "over", "--json"))
    assert (found["broken"], found["holder"]["owner"], found["holder"]["expired"]) == (True, "late", True)


@pytest.mark.parametrize("name", NAMES)
def test_names(run: Run, url: str, name: str) -> None:
    with ms.open(url) as store:
        store.leases.acquire(name, owner=name, ttl=600)
    assert said(run("show", "--json", "--", name))["holder"]["name"] == name
    shown = run("show", "--", name)[1]
    assert shown.splitlines()[0] == "lease " + name.replace("\u202e", "\\u202e")
    assert "\u202e" not in shown + run("ls")[1] + run("audit", "--", name)[1]
    assert run("audit", "--", name)[1].count("\n") == 1
    out = run("break", "--", name)[1]
    assert out.startswith("The lease " + name.replace("\u202e", "\\u202e") + " is broken: ")
    assert out.count("\n") == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "a\udcffb"], ids=ascii)
def test_bad_names(run: Run, name: str) -> None:
    for command in ("show", "audit", "break"):
        for more in ((), ("--json",)):
            code, out, errors = run(command, *more, "--", name)
            assert (code, out) == (1, "")
            assert errors.startswith("metastore: a lease needs a name: ")
            assert errors.count("\n") == 1


def test_on_object_storage(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and no database is opened."""
    monkeypatch.delenv("METASTORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    leases = ms.ObjectStoreLeases(tmp_path / "locks")
    leases.acquire("x", owner="[red]job[/red]", ttl=600)

    def run(*words: str) -> tuple[int, str, str]:
        code = app.run(["lease", *words, "--on", "locks"])
        return (code, *capfd.readouterr())

    assert run("ls")[1].splitlines()[1].split()[:3] == ["x", "[red]job[/red]", "1"]
    (found,) = said(run("ls", "--json"))["leases"]
    assert said(run("show", "x", "--json"))["holder"] == found
    assert run("show", "x")[1].splitlines()[-1].endswith(" acquire token 1 [red]job[/red]")
    assert run("break", "x")[1].startswith("The lease x is broken: [red]job[/red] had it with the token 1, since ")
    assert run("break", "x") == (1, "", "metastore: no process holds the lease 'x'\n")
    assert [json.loads(line)["action"] for line in run("audit", "x", "--json")[1].splitlines()] == ["acquire", "break"]
    assert [file.name for file in tmp_path.iterdir()] == ["locks"]
    leases.acquire("x", owner="job", ttl=600)
    (tmp_path / "locks" / "damaged.json").write_text("{}")
    assert said(run("show", "x", "--json"))["holder"]["owner"] == "job"
    code, out, err = run("ls")
    assert (code, out.splitlines()[1].split()[:3]) == (1, ["x", "job", "3"])
    assert err.startswith("metastore: left out: ")
    assert "damaged.json" in err
    assert run("break", "x")[0] == 0
    code = app.run(["lease", "ls", "--on", "s3://me:s3cret@bucket/locks"])
    assert code == 1
    assert "s3cret" not in capfd.readouterr().err


def test_as_processes(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store, store.leases.acquire("x", owner="somebody"):
        assert document(call(sqlite_url, "lease", "ls", "--json"))["leases"][0]["owner"] == "somebody"
        assert document(here(sqlite_url, "lease", "break", "x", "--json"))["broken"] is True
    refused(call(sqlite_url, "lease", "break", "x"), "no process holds the lease 'x'")
    refused(here("sqlite:////nowhere/at/all.db", "lease", "ls"), "cannot open")
    refused(here(sqlite_url, "lease", "nothing"), "nothing")


def test_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(["lease"]) == 0
    assert "Commands:" in capfd.readouterr().out
    for command in ("ls", "show", "audit", "break"):
        assert app.run(["lease", command, "--help"]) == 0
        assert "--json" in capfd.readouterr().out
    assert app.run(["lease", "run", "--help"]) == 0
    out = capfd.readouterr().out
    for part in ("METASTORE_LEASE_TOKEN", "--grace", "75", "124"):
        assert part in out
