"""Settle the tables whose files are gone: keep, mark or drop them, as the policy says.

A data set is gone if it was crawled before, is below a crawled path, and has no listed file. It does not count as gone
if the crawler could not see it: if a folder above or below could not be listed, or patterns left it out. A listing can
lack existing files, so the data set's location is checked before anything is written: files that are back keep the
table.

The mark is the property ``crawl.missing``, whose value is the time. The crawler removes it when the files are back.
It drops a table only if nothing but the crawler has changed it, and people have put nothing on it. Otherwise it marks
the table. Each table is settled in one transaction on fresh reads.

If more than a share of the tables is gone at once, or all below one of the paths, the lake itself may be unavailable.
Then the crawl drops nothing, and a note says so.

The row of a dropped table stays for a week, without a table: it tells crawls that began to list earlier when the files
were seen to be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metastore.crawl.dataset.candidates import any_below
from metastore.crawl.files.filesystems import Options
from metastore.crawl.files.gone import is_gone
from metastore.crawl.files.listing import Listing
from metastore.crawl.files.places import path_of
from metastore.crawl.policies import OnMissing, Policies
from metastore.crawl.report import Action, Failure, Note, TableResult
from metastore.crawl.write.edits import has_more
from metastore.crawl.write.plan import MISSING
from metastore.crawl.write.registry import Entry
from metastore.crawl.write.sources import is_newer
from metastore.errors import MetastoreError
from metastore.kinds.catalog import Catalog
from metastore.kinds.change import SetProperty
from metastore.kinds.source import Source
from metastore.store import Store

__all__ = ["Seen", "is_news", "missed", "settle_missing", "spared"]

Row = TableResult | Failure | Note
_REMEMBERED: Final = 7 * 86_400_000_000
"""How long the row of a data set that is gone stays without a table: longer than any crawl, in microseconds."""


def missed(lost: Iterable[Entry], listing: Listing, listed: int) -> list[Entry]:
    """Return the rows whose data sets are certainly gone, judged by a listing that began at ``listed``."""
    unseen = sorted({f.path for f in listing.failures} | {n.path for n in listing.notes} | listing.left_out)
    return [
        entry for entry in lost if not (is_newer(entry.row, listed) or _is_hidden(path_of(entry.row.location), unseen))
    ]


def _is_hidden(path: str, unseen: list[str]) -> bool:
    """Return whether ``path``, a folder above it, or anything below it was not seen."""
    if any_below(path, unseen):
        return True
    hidden, parts = set(unseen), path.split("/")
    return any("/".join(parts[:n]) in hidden for n in range(1, len(parts) + 1)) if hidden else False


@dataclass(frozen=True, slots=True)
class Seen:
    """When the files were seen to be gone, as text and by the database's clock; and the name of the crawl's record.

    ``options`` open the locations that are checked.
    """

    at: str
    listed: int
    run: str | None
    options: Options = field(repr=False)


class _IsThere(Exception):
    """The files exist: the listing lacks them, or they are back."""


def spared(gone: Sequence[Entry], listing: Listing, known: int, policies: Policies) -> tuple[set[str], list[Note]]:
    """Return the locations whose tables are not dropped because so many are gone, and notes that say so.

    ``known`` is how many tables there were.
    """
    lost = [entry for entry in gone if entry.path is not None]
    if policies.max_missing >= 1 or not lost:
        return set(), []
    kept, notes = set[str](), []
    for root in listing.roots:
        below = [e for e in lost if any_below(root, [path_of(e.row.location)])]
        if below and not any(folder.root == root for folder in listing.folders):
            kept |= {entry.row.location for entry in below}
            notes.append(Note(root, f"has no files, and {len(below)} tables had theirs there: none of them is dropped"))
    if policies.on_missing == "drop" and len(lost) > policies.max_missing * known:
        kept |= {entry.row.location for entry in lost}
        which = f"the files of {len(lost)} of {known} tables are gone, more than {policies.max_missing:.0%}"
        notes.append(Note(listing.roots[0], f"{which}: none of them is dropped; --max-missing sets another share"))
    return kept, notes


def is_news(entry: Entry, policy: OnMissing, listed: int) -> bool:
    """Return whether a data set that is gone needs a write."""
    if _is_settled(entry.row):
        return entry.row.listed + _REMEMBERED < listed
    if policy == "keep":
        return False
    if entry.path is None or entry.row.missing is None:
        return True
    return policy == "drop" and not _is_edited(entry.row, entry.version)


def _is_settled(row: Source) -> bool:
    """Return whether the row only says when the files were seen to be gone."""
    return row.own_table is None and row.missing is not None


def _is_edited(row: Source, version: int) -> bool:
    return row.edited or row.table_version != version


def settle_missing(
    store: Store,
    catalog: Catalog,
    gone: Iterable[Entry],
    policy_of: Callable[[Entry], OnMissing],
    seen: Seen,
    *,
    dry_run: bool,
) -> Iterator[Row]:
    """Apply the policy to each data set that is gone; yield the results."""
    for entry in gone:
        row, policy = entry.row, policy_of(entry)
        try:
            if is_news(entry, policy, seen.listed) and not dry_run:
                action = store.run(_settling(catalog, row, policy, seen))
            else:
                _ask(row, seen)
                action = _action(store, entry, policy)
            yield from _rows(entry, action, policy, dry_run=dry_run)
        except _IsThere:
            yield Note(
                entry.path or path_of(row.location), "was not listed, but its files are there; it stays as it is"
            )
        except MetastoreError as error:
            yield Failure(path_of(entry.row.location), f"its files are gone: {' '.join(str(error).split())}")


def _ask(row: Source, seen: Seen) -> None:
    """Raise _IsThere unless the files are gone from their own location."""
    if not is_gone(row.location, seen.options):
        raise _IsThere


def _action(store: Store, entry: Entry, policy: OnMissing) -> Action | None:
    """Return the action that a crawl would take."""
    if entry.path is None or entry.row.own_table is None:
        return None
    if policy != "drop" or _is_edited(entry.row, entry.version):
        return "missing"
    (table,) = store.sources.tables([entry.row.own_table])
    return "dropped" if table is not None and not has_more(store.sources, table) else "missing"


def _rows(entry: Entry, action: Action | None, policy: OnMissing, *, dry_run: bool) -> Iterator[Row]:
    if action is None or entry.path is None:
        return
    row = entry.row
    first = action == "missing" and policy != "keep" and row.missing is None
    changes = (f"+ property {MISSING}",) if first else ()
    yield TableResult(
        entry.path,
        path_of(row.location),
        action,
        attempts=int(not dry_run and (action == "dropped" or first)),
        changes=changes,
    )
    if action == "missing":
        since = f" since {row.missing}" if row.missing else ""
        also = "; people have changed it, so it is not dropped" if policy == "drop" else ""
        yield Note(entry.path, f"its files are gone{since}{also}")


def _settling(catalog: Catalog, row: Source, policy: OnMissing, seen: Seen) -> Callable[[Any], Action | None]:
    def remembered(tx: Any) -> Any:
        return tx.sources.row(row.name, location=row.location, missing=seen.at, listed=seen.listed, run=seen.run)

    def settle(tx: Any) -> Action | None:
        (fresh,) = tx.sources.load_many(catalog, [row.name])
        if fresh is None or fresh.version != row.version:
            return None  # another crawl was faster, and its reads are newer
        _ask(row, seen)  # as late as possible: jobs that overwrite files delete them first
        if _is_settled(fresh):
            tx.sources.put_many(catalog, [], [row.name])
            return None
        tables, drops = tx.sources.tables_and_drops([] if fresh.own_table is None else [fresh.own_table])
        if drops:
            return None  # a table that is being dropped may come back
        (table,) = tables or [None]
        if table is None or table.location != fresh.location or not fresh.leads_to(table):
            tx.sources.put_many(catalog, [remembered(tx)])
            return None
        edited = _is_edited(fresh, table.version) or (policy == "drop" and has_more(tx.sources, table))
        if policy == "drop" and not edited:
            tx.tables.drop(table)
            tx.sources.put_many(catalog, [remembered(tx)])
            return "dropped"
        fields = {name: getattr(fresh, name) for name in Source.doc_fields} | {"listed": seen.listed, "edited": edited}
        if fresh.missing is None:
            table = tx.tables.alter(table, SetProperty(MISSING, seen.at))
            fields |= {"missing": seen.at, "table_version": table.version}
        if fresh.missing is None or edited != fresh.edited:
            tx.sources.put_many(catalog, [tx.sources.row(row.name, **fields)])
        return "missing"

    return settle
