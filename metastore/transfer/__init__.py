"""Export and import: a database, or a part of it, as lines of JSON.

    {"metastore": "export", "format": 1, "root": ["lake", "sales"], "ids": false, "history": false,
     "position": "…", "time": "…", "version": "0.1.0", "numbers": null}
    {"path": ["sales"], "family": "catalog", "kind": "catalog", "in_use": true, "doc": {…}, "created_by": …, …}
    {"owned": "partition", "name": "day=1", "doc": {…}, "created_by": …, …}
    {"relation": "tag_on", "to": ["pii"], "to_kind": "tag", "column": null, "value": "", "created_by": …, …}
    {"operation_id": "…", "ordinal": 0, …}
    {"end": true, "entities": 1, "owned": 1, "relations": 1, "operations": 1, "hash": "…", "checksum": "…",
     "header": "…"}

A file begins with a header. Then come the entities, parents before their children. Each is followed by the rows that it
owns, and by the relations from it whose other end is in the file, too. With history, the rows of the operation table
follow. A file without the counts at its end is incomplete. Paths begin below the parent of ``root`` (null: the whole
database), so that a file can be imported anywhere. ``under`` has the families of the names before the last, unless
these are metalake, catalog, schema, schema, …. Documents of all kinds are copied in their stored form. Times are
microseconds since 1970.

**Without ids** a file holds live entities, and import commits them like any other client. **With ids**, it holds the
rows themselves, and **with history** also dropped entities and all operations. A file with ids can restore an empty
database.

**hash** is the content hash. It covers the content that a user sees (path, kind, document, in-use flag; owned rows;
relations), and does not depend on the ids, the database or the order. **checksum** covers the exact lines. Both are
sums of SHA-256 values modulo 2**256, which do not depend on the order. **header** is the SHA-256 of the first line.
"""
