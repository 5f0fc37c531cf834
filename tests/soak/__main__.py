"""Soak: ``python -m tests.soak [--minutes 10] [--url URL]``. It exits with 1 if anything is wrong.

Without a URL it runs a PostgreSQL of its own, and crashes that as well. A database that is given is
written to, and keeps what was written.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import is_sqlite
from tests.progress.accounts import wrong
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy
from tests.soak.chaos import Chaos
from tests.soak.client import DEADLINE, HOT

_CLIENTS = 8
_BEGINS = 60.0
"""How long the first answer may take on a busy machine (seconds)."""
_EVERY = (0.05, 0.6)
"""Seconds between two disturbances."""


def main(arguments: list[str] | None = None) -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--url", help="a database of yours, empty; the default is a PostgreSQL of our own")
    parser.add_argument("--clients", type=int, default=_CLIENTS)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of what is disturbed when")
    chosen = parser.parse_args(arguments)
    console = Console()
    with ExitStack() as stack:
        server = None if chosen.url else stack.enter_context(PostgresServer())
        url = chosen.url or (server.create_database() if server else "")
        ms.migrate(url)
        seed(url, HOT, "lake.cat.other")
        proxy = stack.enter_context(_proxy(url)) if not is_sqlite(url) else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-soak-")))
        chaos = Chaos(url, folder, chosen.clients, random.Random(chosen.seed), server, proxy)
        _disturb(chaos, folder, chosen.minutes * 60, console)
        if proxy is not None:
            proxy.reset()
        problems = chaos.end(4 * DEADLINE + 10)
        console.print(f"seed {chosen.seed}; {dict(chaos.done)}; checking …")
        problems += _check(url, folder, chaos.late, console)
        for problem in problems[:50]:
            console.print(f"[red]{problem}[/red]", highlight=False)
        console.print(f"[red]{len(problems)} violations[/red]" if problems else "[green]nothing is wrong[/green]")
    return 1 if problems else 0


def _proxy(url: str) -> PostgresProxy:
    from metastore.urls import parse_url

    parsed = parse_url(url)
    return PostgresProxy(parsed.host or "127.0.0.1", parsed.port or 5432)


def _disturb(chaos: Chaos, folder: Path, seconds: float, console: Console) -> None:
    dice = random.Random(0)
    wait_until(lambda: any("ok " in ledger.read_text() for ledger in folder.glob("p*")), _BEGINS)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("begins", total=seconds)
        while (elapsed := time.monotonic() - began) < seconds:
            chaos.step()
            lines = sum(ledger.stat().st_size for ledger in folder.glob("p*")) // 24
            what = " ".join(f"{name} {count}" for name, count in sorted(chaos.done.items()))
            progress.update(task, completed=elapsed, description=f"~{lines} calls; {what}")
            time.sleep(dice.uniform(*_EVERY))


def _check(url: str, folder: Path, late: set[str], console: Console) -> list[str]:
    """Compare what was said with history, and verify the whole database."""
    with ms.open(url) as store:
        for n in range(2):  # the next writer resolves what dead clients have left
            store.tables.alter(HOT, ms.SetComment(f"the end {n}"), principal="seed")
            store.schemas.alter("lake.cat.s", ms.SetComment(f"the end {n}"), principal="seed")
    found, totals = wrong(url, sorted(folder.glob("p*")), punctual=lambda name: name not in late)
    console.print(totals)
    found += [] if totals.get("ok") else ["no call was acknowledged: there was nothing to check"]
    with ms.open(url) as store:
        stats = store.stats()
        found += [f"{stats.pending} intents are pending"] if stats.pending else []
        found += [f"a mark that nobody owns: {mark}" for mark in stats.marks if "other" not in (mark.path or "")]
    return found + violations(url)


if __name__ == "__main__":
    sys.exit(main())
