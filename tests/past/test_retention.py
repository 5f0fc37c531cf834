"""gc and consumers of the feed: it keeps what they have not read, warns in time, and at last goes on without them."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import EntityNotFound, HistoryGone, InvalidArgument, VersionConflict
from metastore.feed.unread import Unread, unread
from tests.cli.test_cli import here

pytestmark = pytest.mark.one_in(3)

HOUR = timedelta(hours=1)
NOW = timedelta(0)
ALARMS = "metastore.consumers"


@pytest.fixture
def table(store: Store) -> ms.Table:
    """Give a table to alter."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store.tables.create("m.c.s.t", parents=True)


def alter(store: Store, table: ms.Table, times: int = 20) -> None:
    """Make history that gc removes, if nobody needs it."""
    for n in range(times):
        store.tables.alter(table, ms.SetComment(str(n)))


def looked_at(store: Store, caplog: pytest.LogCaptureFixture, age: timedelta, keep: timedelta) -> tuple[Unread, str]:
    """Look as gc does when the oldest change that "late" has not read is so old; return the alarms, too."""
    backend = store._session.backend
    late = next(one for one in backend.readers.consumers() if one.name == "late")
    ((_, made),) = backend.past.times(late.seq, 1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, ALARMS):
        found = unread(backend, made + age // timedelta(microseconds=1), keep)
    return found, "\n".join(record.getMessage() for record in caplog.records if record.name == ALARMS)


def test_an_alarm_comes_before_the_limit_and_at_it(
    store: Store, table: ms.Table, caplog: pytest.LogCaptureFixture
) -> None:
    store.consumers.get("late")
    late = store._session.backend.readers.consumers()[0].seq
    alter(store, table, 3)
    store.consumers.get("early")

    def look(hours: float) -> tuple[Unread, str]:
        return looked_at(store, caplog, hours * HOUR, 10 * HOUR)

    assert look(5) == (Unread(late, ()), "")
    found, alarm = look(6)
    assert found == Unread(late, ())
    assert alarm.startswith("the consumer late has left changes unread for 6:00:00: gc waits for it for 4:00:00 more")
    assert look(10)[0] == Unread(late, ()), "the limit belongs to the time that gc waits"
    found, alarm = look(10.5)
    assert found.overdue == ("late",)
    assert found.after > late, "only the one that has read everything counts"
    assert alarm.startswith("the consumer late has left changes unread for 10:30:00: gc does not wait for it any more")
    assert "early" not in alarm


def test_gc_goes_on_without_a_consumer_that_is_too_late(
    store: Store, table: ms.Table, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = store.consumers.get("late")
    alter(store, table)
    kept = store.gc(retention=NOW, keep_versions=1, keep_unread=HOUR)
    assert (kept.overdue, len(consumer.read())) == ((), 20)
    with caplog.at_level(logging.WARNING, ALARMS):
        given_up = store.gc(retention=NOW, keep_versions=1, keep_unread=NOW)
    assert (given_up.overdue, given_up.versions > 15) == (("late",), True)
    assert [record.name for record in caplog.records if record.name == ALARMS] == [ALARMS]
    with pytest.raises(HistoryGone):
        consumer.read()


def test_nothing_is_kept_for_a_consumer_that_has_lost_changes(
    store: Store, table: ms.Table, caplog: pytest.LogCaptureFixture
) -> None:
    """It could read nothing of it: else one that nobody needs would hold up gc again and again."""
    consumer = store.consumers.get("late")
    alter(store, table)
    store.gc(retention=NOW, keep_versions=1, keep_unread=NOW)
    alter(store, table)
    with caplog.at_level(logging.WARNING, ALARMS):
        again = store.gc(retention=NOW, keep_versions=1)
    assert (again.overdue, again.versions > 15) == (("late",), True)
    assert "late has lost changes to gc" in caplog.text

    with pytest.raises(HistoryGone) as gone:
        consumer.run(lambda tx, changes: None)
    consumer.reset(gone.value.since)
    alter(store, table)
    assert store.gc(retention=NOW, keep_versions=1).overdue == ()
    assert len(consumer.read()) >= 20, "gc waits for it again"


def test_a_consumer_is_reset(store: Store, table: ms.Table) -> None:
    consumer = store.consumers.get("c")
    alter(store, table, 3)
    consumer.reset("now")
    assert consumer.read() == []
    consumer.reset("beginning")
    everything = list(store.changes())
    assert consumer.read() == everything
    consumer.reset(everything[1].position)
    assert consumer.read() == everything[2:]
    other = store.consumers.get("c")
    other.reset("now")
    with pytest.raises(VersionConflict):
        consumer.reset("beginning")
    assert consumer.read() == []
    for bad in ("yesterday", None):
        with pytest.raises(InvalidArgument):
            consumer.reset(bad)  # type: ignore[arg-type]
    store.consumers.drop("c")
    with pytest.raises(EntityNotFound):
        consumer.reset("now")


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_the_command_line(url: str) -> None:
    def run(line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = here(url, *shlex.split(line))
        assert done.returncode == code, done.stderr
        return done

    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        table = store.tables.create("m.c.s.t", parents=True)
        store.consumers.get("late one")
        alter(store, table)
        assert run("gc --retention 0s --keep-versions 1").stderr == ""
        (row,) = json.loads(run("consumers --json").stdout)["consumers"]
        assert (row["name"], row["changes"]) == ("late one", 20)
        assert "late one" in run("consumers").stdout

        done = run("gc --retention 0s --keep-versions 1 --keep-unread 0s --json")
        assert json.loads(done.stdout)["overdue"] == ["late one"]
        assert "gc does not wait for it any more" in done.stderr
        assert "has lost changes" in run("gc --retention 0s").stderr
        with pytest.raises(HistoryGone):
            store.consumers.get("late one").read()
        (row,) = json.loads(run("consumers 'late one' --reset beginning --json").stdout)["consumers"]
        assert row["changes"] == len(store.consumers.get("late one").read()) > 0
        assert run("gc --retention 0s").stderr == ""

        for wrong in ("--remove", "--reset now", "'late one' --remove --reset now"):
            assert "--remove" in run(f"consumers {wrong}", 1).stderr
        assert store.consumers.list()
        assert run("consumers 'late one' --remove").stdout == ""
        assert run("consumers --json").stdout.split() == ["{", '"consumers":', "[]", "}"]
        assert "there is no consumer" in run("consumers 'late one' --remove", 1).stderr


@pytest.mark.parametrize("what", ["at", "changes", "page", "pin", "diff", "revert"])
def test_gc_while_a_position_is_looked_up(
    store: Store, table: ms.Table, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gc removes in that moment is gone, and was not lost by a backup that was put back."""
    alter(store, table, 3)
    old = store.position()
    alter(store, table, 3)
    backend = store._session.backend
    real = backend.event_at

    def overtaken(seq: int) -> Any:
        monkeypatch.setattr(backend, "event_at", real)
        store.gc(retention=NOW, keep_versions=1)
        return real(seq)

    monkeypatch.setattr(backend, "event_at", overtaken)
    calls: dict[str, Callable[[], object]] = {
        "at": lambda: store.at(old),
        "changes": lambda: list(store.changes(after=old)),
        "page": lambda: store.changes_page(after=old),
        "pin": lambda: store.pin("p", at=old),
        "diff": lambda: list(store.diff(old)),
        "revert": lambda: store.revert(table, to=old),
    }
    with pytest.raises(HistoryGone):
        calls[what]()
