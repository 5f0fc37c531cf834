"""A crawl, from nothing to a history, in one minute: ``python -m tests.sample.run [FOLDER]``.

It builds a lake of real data, crawls it into a fresh embedded database, and crawls it again (nothing has changed). Then
the lake grows by a month and a column. It crawls once more, and shows what the store knows then. Every step is a
command that a user could type; each is shown before it runs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.sample.lake import build, grow
from tests.setup.java import find_java

__all__ = ["main"]

CATALOG = "lake.nyc"
FLIGHTS = f"{CATALOG}.nycflights13.flights"


def main(folder: Path) -> None:
    """Run the whole story in ``folder``; SystemExit with a command's status when one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    database, lake = folder / "metastore.db", folder / "lake"
    for file in folder.glob(f"{database.name}*"):  # -wal and -shm too
        file.unlink()
    url = f"sqlite:///{database}"
    say("build the lake")
    build(lake)
    crawl(url, lake, "the first crawl")
    crawl(url, lake, "the second crawl: nothing has changed, so nothing is written")
    say("December arrives, with a new column: speed")
    grow(lake)
    crawl(url, lake, "the third crawl")
    show(url, folder)


def crawl(url: str, lake: Path, title: str) -> None:
    """Bring the store up to date with the lake."""
    say(title)
    metastore(url, "crawl", str(lake), "--into", CATALOG)


def show(url: str, folder: Path) -> None:
    """Show what the store knows."""
    say("what is there")
    metastore(url, "ls", CATALOG, "--recursive")
    say("one table")
    metastore(url, "show", FLIGHTS)
    say("how it became so")
    metastore(url, "history", FLIGHTS)
    say("the crawls that found something new")
    metastore(url, "crawls", CATALOG)
    say("is all as it must be?")
    metastore(url, "verify")
    say("take it elsewhere")
    metastore(url, "export", "--history", "-o", str(folder / "catalog.jsonl"))


def metastore(url: str, *words: str) -> None:
    """Show a command line, and run it."""
    shown = shlex.join(["metastore", "--url", url, *words])
    print(f"$ {shown}", flush=True)
    done = subprocess.run([sys.executable, "-m", "metastore", "--url", url, *words], env=environment(), check=False)
    if done.returncode:
        sys.exit(done.returncode)


def environment() -> dict[str, str]:
    """Give Spark a Java, this Python, and an address that nobody else can reach."""
    ours = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    if java := find_java():
        ours["JAVA_HOME"] = str(java)
    return {**os.environ, **ours}


def say(title: str) -> None:
    """Announce a step."""
    print(f"\n=== {title}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/run"))
