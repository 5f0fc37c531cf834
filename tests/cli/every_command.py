"""Run every command once, in one process: ``python -m tests.cli.every_command URL FOLDER``.

What a command writes follows a line with its words. The process ends with an error if a command does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import metastore as ms
from metastore.cli.app import run

__all__ = ["COMMANDS", "LONG", "MARK", "fill_more", "split"]

LONG = "orders_of_the_northern_region_with_all_their_lines"
TABLE = f"lake.c.s.{LONG}"
MARK = "@@@"
LEASE = "compaction of the orders of the northern region"

COMMANDS: tuple[tuple[int, str], ...] = (
    (0, "migrate"),
    (0, "verify"),
    (0, "ls lake.c -r"),
    (0, f"show {TABLE}"),
    (0, f"history {TABLE}"),
    (0, f"diff {TABLE} 1"),
    (0, "changes"),
    (0, "find lake"),
    (0, "stats"),
    (0, "pin the_release_of_this_month"),
    (0, "pin"),
    (0, "create tag lake.of_persons --comment words"),
    (0, f"tags {TABLE} --attach lake.of_persons"),
    (0, f"policies {TABLE}"),
    (0, "create role lake.readers_of_the_northern_region"),
    (0, f"grant lake.readers_of_the_northern_region select_table {TABLE}"),
    (0, f"who {TABLE}"),
    (1, f"allowed somebody_of_the_northern_region select_table {TABLE}"),
    (0, f"allowed somebody_of_the_northern_region {TABLE}"),
    (0, f"revoke lake.readers_of_the_northern_region select_table {TABLE}"),
    (0, f"revert {TABLE} --to 2999-01-01T00:00 --dry-run"),
    (0, "relay copies --to FOLDER/events --start beginning --once"),
    (0, "consumers"),
    (0, "consumers copies --reset beginning"),
    (0, "consumers copies --remove"),
    (1, "serve --host 0.0.0.0 --port 0"),
    (1, "console --port 65536"),
    (0, f"create table lake.c.s.made_of_{LONG} --column id:long --set owner=somebody"),
    (0, f"alter lake.c.s.made_of_{LONG} --add-column note:string --set owner=nobody --dry-run"),
    (0, f"alter lake.c.s.made_of_{LONG} --add-column note:string --set owner=nobody"),
    (0, f"rename lake.c.s.made_of_{LONG} once_{LONG}"),
    (0, f"drop lake.c.s.once_{LONG}"),
    (0, f"restore lake.c.s.once_{LONG}"),
    (0, f"drop lake.c.s.once_{LONG} --dry-run"),
    (0, f"drop lake.c.s.once_{LONG}"),
    (0, f"purge lake.c.s.once_{LONG} --yes"),
    (0, "gc --retention 0s"),
    (0, "backup FOLDER/copy.db"),
    (0, "export -o FOLDER/all.jsonl"),
    (0, "import FOLDER/all.jsonl --if-exists return"),
    (0, "crawl FOLDER/in --into lake.c"),
    (0, "crawls lake.c"),
    (0, "drops"),
    (0, "drops resume"),
    (1, f"drops roll-back lake.c.s.once_{LONG}"),
    (1, "loadtest --scenario one-that-is-not-among-those-that-there-are"),
    (0, "secrets new-key"),
    (0, "secrets rotate"),
    (0, "secrets scrub"),
    (0, "lease ls"),
    (0, f"lease show {LEASE}"),
    (0, f"lease audit {LEASE}"),
    (0, f"lease break {LEASE}"),
    (0, "lease run nightly -- true"),
    (0, "cache members"),
    (1, "cache evict 1"),
    (1, f"show {TABLE}_and_of_the_southern"),
)
"""The exit code, and the words. FOLDER is a folder of files; a lease's name is one word of the command."""


def fill_more(url: str, folder: Path) -> None:
    """Add to what ``fill`` writes: long names, long texts, a lease, and a file that cannot be read."""
    with ms.open(url, principal="a principal of several words") as store:
        table = store.tables.create(("lake", "c", "s", LONG), columns=[ms.Column("id", "long", comment="the " * 30)])
        store.tables.alter(table, ms.AddColumn("note", "string"), ms.SetComment("one word after another " * 9))
        store.leases.acquire(LEASE, owner="a worker of several words on job-7", ttl=600)
    (folder / "in").mkdir()
    (folder / "in" / "a file that leads nowhere.csv").symlink_to(folder / "nothing")


def split(text: str) -> dict[str, str]:
    """Return what each command wrote, by its words."""
    parts = text.split(MARK)[1:]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}


def main(url: str, folder: str) -> int:
    """Run all; return how many ended with another exit code than theirs."""
    wrong = 0
    for number, (code, line) in enumerate(COMMANDS):
        words = [LEASE if w == "LEASE" else w.replace("FOLDER", folder) for w in line.replace(LEASE, "LEASE").split()]
        print(f"{MARK} {number}", flush=True)
        found = run(["--url", url, "--principal", "ann of the team", *words])
        if found != code:
            wrong += 1
            print(f"{line}: exit {found}, not {code}", file=sys.stderr)
    print(f"{MARK} end {wrong}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
