"""What happens now reaches open pages: once, in order, with the rights of the moment, and not for ever."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

import metastore as ms
from metastore.serve import Principal, Principals, TokenFile
from metastore.serve.console import hub
from metastore.serve.console.hub import Hub, _items_between
from metastore.serve.console.listener import Item, Listener, Wanted
from metastore.serve.console.live import _waiting, stream
from metastore.serve.console.workers import Workers
from tests.console.server import Console, served
from tests.console.test_signin import sign_in
from tests.servers.process import free_port, wait_until

pytestmark = pytest.mark.one_in(3)

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Stream:
    """The events of one stream, as they come."""

    events: list[tuple[str, str, str]] = field(default_factory=list)
    """(event, id, data)."""
    status: int | None = None
    is_over: bool = False

    @property
    def ids(self) -> list[str]:
        return [key for event, key, _ in self.events if event == "change"]

    def has(self, text: str) -> bool:
        return any(text in data for _, _, data in self.events)

    def said(self, event: str) -> bool:
        return any(event == name for name, _, _ in self.events)


@contextmanager
def followed(console: Console, headers: dict[str, str] | None = None, **query: str) -> Iterator[Stream]:
    """Follow a stream in a thread.

    Its end shuts the connection down: a socket that is closed while a thread reads from it stays open until the next
    byte comes, and the server would count the stream until then.
    """
    stream, client = Stream(), httpx.Client(cookies=httpx.Cookies(console.client.cookies), timeout=None)
    sockets: list[socket.socket] = []

    def read() -> None:
        try:
            with client.stream("GET", f"{console.address}stream", params=query, headers=headers) as answer:
                sockets.append(answer.extensions["network_stream"].get_extra_info("socket"))
                stream.status = answer.status_code
                now: dict[str, str] = {}
                for line in answer.iter_lines():
                    key, _, value = line.partition(": ")
                    if line:
                        now[key] = now[key] + value if key in now else value
                    elif now:
                        stream.events.append((now.get("event", ""), now.get("id", ""), now.get("data", "")))
                        now = {}
        except (httpx.HTTPError, RuntimeError, AttributeError):  # the client is closed, or the server is gone
            pass
        stream.is_over = True

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        assert wait_until(lambda: stream.said("hello") or stream.is_over, 20.0)
        assert stream.status == 200
        yield stream
    finally:
        with suppress(OSError):  # the server has ended it
            for one in sockets:
                one.shutdown(socket.SHUT_RDWR)
        thread.join()
        client.close()


def write(store: ms.Store, name: str) -> str:
    """Change a table; return the position of the change."""
    store.tables.create(f"lake.sales.shop.{name}", if_exists="replace", comment=str(ms.new_operation_id()))
    return store.position()


def test_a_change_of_another_process_reaches_the_page(console: Console, lake_url: str) -> None:
    with followed(console, after=console.store.position()) as stream:
        with ms.open(lake_url, principal="eve") as other:
            position = write(other, "<i>live</i>".replace("<i>", "").replace("</i>", ""))
        assert wait_until(lambda: position in stream.ids, 10.0)
        assert stream.has("lake.sales.shop.live")
        assert stream.has("eve")


def test_a_page_that_comes_back_has_no_gap_and_no_repetition(console: Console, lake_url: str) -> None:
    """On another server, too: positions are the database's."""
    begin = console.store.position()
    first = [write(console.store, f"back{n}") for n in range(3)]
    with followed(console, after=begin) as stream:
        assert wait_until(lambda: stream.ids == first, 10.0)
    missed = [write(console.store, f"away{n}") for n in range(3)]
    with served(lake_url) as other, followed(other, {"Last-Event-ID": first[-1]}) as stream:
        assert wait_until(lambda: stream.ids[:3] == missed, 10.0)
        more = [write(console.store, f"again{n}") for n in range(3)]
        assert wait_until(lambda: stream.ids == [*missed, *more], 10.0)


@pytest.mark.long
def test_many_pages_come_back_at_once(console: Console) -> None:
    """More of them than pages can wait for a thread."""
    begin = console.store.position()
    missed = write(console.store, "crowd")
    with ExitStack() as stack:
        streams = [stack.enter_context(followed(console, after=begin)) for _ in range(130)]
        assert wait_until(lambda: all(missed in one.ids for one in streams), 30.0)
        more = write(console.store, "crowd")
        assert wait_until(lambda: all(one.ids == [missed, more] for one in streams), 30.0)


def test_a_page_that_comes_during_a_look_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look knows nothing of the page, and reads a change that the page's own read is too early for."""

    async def scenario() -> None:
        hub = Hub(store, lambda _: store, Workers())
        look, looks, go_on = hub._look, threading.Semaphore(0), threading.Event()

        def slow(users: set[Principal], watchers: set[Principal]) -> object:
            looks.release()
            assert go_on.wait(20.0)
            return look(users, watchers)

        begin = store.position()
        first = Listener(Principal("first"), Wanted(), lambda: Principal("first"), sent=begin)
        hub.add(first)
        await _until(lambda: first in hub._listeners)
        monkeypatch.setattr(hub, "_look", slow)
        await _until(lambda: looks.acquire(blocking=False))
        late = Listener(Principal("late"), Wanted(), lambda: Principal("late"), sent=store.position())
        hub.add(late)
        await asyncio.sleep(0.05)
        store.metalakes.create("made")
        go_on.set()
        await _until(lambda: bool(first.waiting) and bool(late.waiting))
        await asyncio.sleep(1.2)  # one more look repeats nothing
        assert (
            [item.position for item in late.waiting] == [item.position for item in first.waiting] == [store.position()]
        )
        hub.close()

    with ms.open("memory://", principal="ada") as store:
        store.metalakes.create("lake")
        asyncio.run(scenario())


def test_the_trouble_of_one_user_delays_no_other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A membership that cannot follow its token, or rights that take too long to read."""

    def view(principal: Principal) -> ms.Store:
        if principal.name == "locked out":
            raise ms.PermissionDenied("locked out", "use_catalog", "lake", "no")
        return store.as_user("slow") if principal.name == "slow" else store

    def listener(name: str, *, gauges: bool = False) -> Listener:
        return Listener(Principal(name), Wanted(gauges=gauges), lambda: Principal(name), sent=store.position())

    async def scenario() -> None:
        hub = Hub(store, view, Workers())
        locked, slow, ada = (listener(name) for name in ("locked out", "slow", "ada"))
        watching = listener("locked out", gauges=True)
        for one in (locked, watching, slow, ada):
            hub.add(one)
        await _until(lambda: ada in hub._listeners and slow in hub._listeners)
        store.metalakes.create("made")
        await _until(lambda: [item.position for item in ada.waiting] == [store.position()])
        assert [one.more for one in (locked, slow, ada)] == [True, True, False]
        assert watching.is_over
        assert not any(one.notices for one in (locked, slow, ada))
        hub.close()

    monkeypatch.setattr("metastore.serve.console.hub._LONGEST", -1.0)
    with ms.open("memory://", principal="ada") as store:
        store.metalakes.create("lake")
        asyncio.run(scenario())


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass in 10 s")


def test_filters_hold_on_the_stream(console: Console) -> None:
    with followed(console, after=console.store.position(), under="lake.sales.shop.mine", by="ada") as stream:
        write(console.store, "other")
        position = write(console.store, "mine")
        assert wait_until(lambda: stream.ids == [position], 10.0)


def test_a_position_that_cannot_be_followed_is_told(console: Console) -> None:
    for wrong in ("x-0000000000000001", "nonsense"):
        with followed(console, after=wrong) as stream:
            assert wait_until(lambda: stream.said("gone"), 10.0)


def test_a_slow_reader_is_told_how_much_it_missed() -> None:
    listener = Listener(Principal("ann"), Wanted(), lambda: Principal("ann"), sent="e-0000")
    items = [Item(f"e-{n:04}", "table", "alter", "ann", ("lake.t",), f"id: {n}".encode()) for n in range(700)]
    listener.offer(items)
    events = _waiting(listener)
    assert events[0] == b"event: skipped\ndata: 500\n\n"
    assert events[1:] == [one.event for one in items[500:]]
    assert not _waiting(listener)
    listener.offer(items[-3:])
    assert not _waiting(listener), "what was sent comes once"


def as_user(console: Console, token: str) -> Console:
    """Return the console with the session of another user, and no other."""
    console.client.cookies.clear()
    sign_in(console.client, token)
    return console


def test_a_page_that_was_away_for_long_is_told(lake_url: str) -> None:
    with served(lake_url) as console:
        begin = console.store.position()
        console.store.tables.create_many(
            console.store.schemas.create("lake.sales.crowd"), [{"name": f"many{n}"} for n in range(310)]
        )
        with followed(console, after=begin) as stream:
            assert wait_until(lambda: ("skipped", "", "more than 300") in stream.events, 10.0)
            position = write(console.store, "next")
            assert wait_until(lambda: stream.ids == [position], 10.0)


def test_a_user_gets_what_it_sees_at_that_moment(guarded: Console) -> None:
    store = guarded.store
    store.roles.assign("lake.reader", "lake.analysts")
    guarded.client.base_url = guarded.address
    begin = store.position()
    with (
        followed(as_user(guarded, "root-token"), after=begin) as all_of_it,
        followed(as_user(guarded, "narrow-token"), after=begin) as stream,
    ):
        store.tables.create("lake.sales.hidden.more", if_exists="replace", comment=str(ms.new_operation_id()))
        seen = write(store, "seen")
        assert wait_until(lambda: seen in stream.ids, 10.0)
        store.roles.unassign("lake.reader", "lake.analysts")
        lost = write(store, "lost")
        assert wait_until(lambda: lost in all_of_it.ids, 10.0)  # the same look sends to both
        store.roles.assign("lake.reader", "lake.analysts")
        after = write(store, "after")
        assert wait_until(lambda: after in stream.ids, 10.0)
        assert lost not in stream.ids
        assert not stream.has("sales.hidden")
        assert len(set(stream.ids)) == len(stream.ids)
        assert all_of_it.has("sales.hidden.more")
    with followed(guarded, watch="contention") as stream:
        assert wait_until(lambda: stream.is_over, 10.0)
        assert not stream.said("gauges")


def test_a_session_that_ends_ends_its_stream(lake_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("root root-token\nnarrow narrow-token\n")
    with served(lake_url, Principals(TokenFile(file)), admins=("root",)) as console:
        assert console.client.get(f"{console.address}stream").status_code == 401
        console.client.base_url = console.address
        sign_in(console.client, "narrow-token")
        with followed(console, after=console.store.position()) as stream:
            file.write_text("root root-token\n")
            assert wait_until(lambda: stream.is_over, 10.0)
            assert stream.said("over")


def test_one_user_leaves_streams_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_MOST_EACH", 3)

    async def scenario() -> list[int]:
        streams = Hub(store, lambda _: store, Workers())
        asked = Request({"type": "http", "query_string": b"", "headers": []})
        users = [Principal(name) for name in (*["narrow"] * 4, "root")]
        made = [stream(asked, streams, who, lambda who=who: who) for who in users]  # type: ignore[misc]
        streams.close()
        return [one.status_code for one in made]

    with ms.open("memory://") as store:
        assert asyncio.run(scenario()) == [200, 200, 200, 503, 200]


def test_a_name_that_no_user_can_have_disturbs_nobody(lake_url: str) -> None:
    with (
        served(lake_url, Principals(header="X-User"), admins=("root",)) as console,
        followed(console, {"X-User": "root"}, after=console.store.position()) as stream,
    ):
        assert wait_until(lambda: stream.said("hello"), 10.0)
        other = console.client.get(f"{console.address}stream", headers={"X-User": "x" * 300})
        assert other.status_code == 400
        position = write(console.store, "undisturbed")
        assert wait_until(lambda: position in stream.ids, 10.0)
        assert not stream.said("gone")


def test_a_token_with_another_owner_ends_the_stream(lake_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("narrow a-token\n")
    with (
        served(lake_url, Principals(TokenFile(file)), admins=("root",)) as console,
        followed(console, {"Authorization": "Bearer a-token"}) as stream,
    ):
        assert wait_until(lambda: stream.said("hello"), 10.0)
        file.write_text("stranger a-token\n")
        assert wait_until(lambda: stream.said("over"), 10.0)


def test_a_page_that_comes_back_after_a_fail_over_gets_what_it_missed() -> None:
    with ms.open("memory://") as store:
        for name in "abc":
            store.metalakes.create(name)
        first, second, _ = [one.position for one in store.changes()]
        until = second.replace("-", "t00000002-")  # the hub's, of another timeline
        assert [one.position for one in _items_between(lambda _: store, Principal("ada"), first, until)[0]] == [second]


def test_a_page_that_was_away_for_long_is_told_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who sees nothing of a long feed holds no thread of the console while all of it is read."""
    monkeypatch.setattr("metastore.serve.console.hub._LONGEST", -1.0)
    with followed(console, after=console.store.position(back=10)) as stream:
        assert wait_until(lambda: stream.said("skipped"), 10.0)
        position = write(console.store, "from now on")
        assert wait_until(lambda: position in stream.ids, 10.0)


def test_the_gauges_are_live(console: Console) -> None:
    with followed(console, watch="contention") as stream:
        assert wait_until(lambda: stream.said("gauges"), 10.0)
        assert stream.has("Hottest entities")


@pytest.mark.long
@pytest.mark.parametrize("command", [["serve"], ["console", "--no-browser"]])
def test_sigterm_ends_streams_at_once(lake_url: str, command: list[str]) -> None:
    port = free_port()
    words = [sys.executable, "-m", "metastore", "--url", lake_url, *command, "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=ROOT)
    try:
        address = f"http://127.0.0.1:{port}/console/"
        assert wait_until(lambda: _answers(address), 60.0)
        with httpx.Client() as client, ms.open(lake_url) as store, followed(Console(address, client, store)) as stream:
            process.send_signal(signal.SIGTERM)
            assert process.wait(8.0) is not None
            assert wait_until(lambda: stream.is_over, 5.0)
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address).status_code == 200
    except httpx.HTTPError:
        return False
