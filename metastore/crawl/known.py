"""Give each place one name: a lake that the catalog knows under another name is crawled under that name.

``s3://b/m`` and ``s3a://b/m`` are one place, and so are a folder and a link to it. The catalog's rows are named after
locations, so under a second name each data set would be a second table, or a failure. If the catalog has no row at or
below a path, the records of earlier crawls show its other names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from metastore.crawl.files.discover import root_of
from metastore.crawl.files.filesystems import is_uri
from metastore.crawl.files.places import join, location_of
from metastore.crawl.read.signatures import prefix_of
from metastore.crawl.report import Note
from metastore.kinds.catalog import Catalog
from metastore.store import Store

__all__ = ["as_known"]

_SCHEMES: Final = {"s3a": "s3", "gcs": "gs"}


def as_known(
    store: Store, target: tuple[str, ...], paths: Iterable[str | os.PathLike[str]]
) -> tuple[list[str | os.PathLike[str]], list[Note]]:
    """Return the paths as the catalog knows them, and a note for each that it knows under another name."""
    (catalog,) = store.catalogs.load_many([target[:2]])
    named, notes = list(paths), list[Note]()
    for at, path in enumerate(named if catalog is not None else ()):
        root = root_of(path, {})
        if catalog is None or _has_rows(store, catalog, root):
            continue
        known = next((one for one in _other_names(store, catalog, root) if _has_rows(store, catalog, one)), None)
        if known is not None:
            # the options of a URI stay with it
            named[at] = f"{known.partition(':')[0]}:{str(path).partition(':')[2]}" if is_uri(root) else known
            notes.append(Note(known, f"is the same place as {root}; the catalog knows it by this name, and keeps it"))
    return named, notes


def _has_rows(store: Store, catalog: Catalog, root: str) -> bool:
    here, inside, prefix = location_of(root), join(location_of(root), ""), prefix_of(root)
    # mostly one row is enough; but the first may belong to a place such as lake-2, whose name begins with lake
    first = store.sources.page(catalog, size=1, prefix=prefix)
    rows = chain(first.items, store.sources.below(catalog, prefix) if first.next_token else ())
    return any(row.location == here or row.location.startswith(inside) for row in rows)


def _other_names(store: Store, catalog: Catalog, root: str) -> Sequence[str]:
    """Return the names of a place that follow from the paths of earlier crawls, the newest first."""
    place, names = _place(root), dict[str, None]()
    for run in reversed(list(store.crawls.list(catalog))):
        for before in run.values.get("paths", ()):
            above = _place(before)
            if place == above or place.startswith(join(above, "")):
                names[before + place[len(above.rstrip("/")) :]] = None
    return [name for name in names if name != root]


def _place(root: str) -> str:
    """Return a text that is equal for all names of a place."""
    if not is_uri(root):
        return os.path.realpath(root)
    scheme, _, rest = root.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"
