"""Every interleaving of statements, on a real PostgreSQL and a real SQLite.

Each process of a small program has its thread and its connection, and stops before each statement that it sends
(:mod:`~tests.statements.gate`). A scheduler releases one process at a time (:mod:`~tests.statements.schedule`), in
every possible order (:mod:`~tests.statements.explore`). On PostgreSQL each transaction stops before its COMMIT too,
even that of a single statement, so that its locks stay while others run. ``pg_blocking_pids`` shows which statement
waits for a lock. Time stands still, for the database as well, until a process sleeps.

The results, the content and the order of the feed must be those of the memory model in one of the sequential orders
that real time allows (:mod:`~tests.statements.oracle`). ``verify`` must find nothing. ``python -m tests.statements``
prints the counts, and which operation made which other one retry (docs/conflict-matrix.md).
"""
