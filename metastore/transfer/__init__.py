"""Export and import: a database, or a part of it, as lines of JSON.

    {"metastore": "export", "format": 1, "root": ["lake", "sales"], "ids": false, "history": false,
     "position": "…", "time": "…", "version": "0.1.0", "numbers": null}
    {"path": ["sales"], "family": "catalog", "kind": "catalog", "in_use": true, "doc": {…}, "created_by": …, …}
    {"owned": "partition", "name": "day=1", "doc": {…}, "created_by": …, …}
    {"operation_id": "…", "ordinal": 0, …}
    {"end": true, "entities": 1, "owned": 1, "operations": 1, "hash": "…", "checksum": "…"}

A header; entities, parents before their children, each followed by the rows that it owns; with history the rows of the
operation table; at the end the counts, without which a file is not whole. Paths begin below the parent of ``root``
(null: the whole database), so that they are true wherever the file is imported. ``under`` says of which families the
names before the last are, where these are not metalake, catalog, schema, schema, …. Documents are moved as they are
stored, whatever the kind. Times are microseconds since 1970.

**Without ids** a file holds what is live, and is imported by commits like any other client's. **With ids** it holds
the rows themselves, **with history** also what was dropped and every operation: that restores an empty database.

**hash** is the content hash: what a user sees (path, kind, document, in-use flag; owned rows), whatever the ids, the
database, the order. **checksum** is over the lines as they are. Both are sums of SHA-256 values modulo 2**256, so
that neither needs an order.
"""
