"""Sources by the beginning of their names, on each backend."""

from __future__ import annotations

import metastore as ms

NAMES = ["a", "a!", "ab", "abc", "ab ", "b", "b\ue000", "b\uffff", "é"]
PREFIXES = ["", "a", "ab", "ab\x01", "ab\x02", "b", "b\ue000", "b\ue001", "ab\x00\x00", "\x00"]


def test_a_prefix_leads_to_the_names_that_begin_with_it(store: ms.Store) -> None:
    store.metalakes.create("lake")
    catalog = store.catalogs.create("lake.c", type="relational")
    store.sources.put_many(catalog, [store.sources.row(name, location=f"s3://{name}") for name in NAMES])
    found = {prefix: [source.name for source in store.sources.below(catalog, prefix)] for prefix in PREFIXES}
    expected = {prefix: sorted(name for name in NAMES if name.startswith(prefix)) for prefix in PREFIXES}
    assert found == expected
