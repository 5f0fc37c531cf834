"""Every interleaving of statements, on a real PostgreSQL and a real SQLite.

Each process of a small program runs in a thread of its own, on a connection of its own, and stops before each
statement it sends (:mod:`~tests.statements.gate`). A scheduler releases one at a time
(:mod:`~tests.statements.schedule`), and goes through all the orders there are
(:mod:`~tests.statements.explore`). On PostgreSQL a transaction stops before its COMMIT too, also that of a single
statement, so that what it has locked stays locked while others run; a statement that waits for a lock is found with
``pg_blocking_pids``. Time stands still but for those who sleep, for the database as well.

What comes out (results, content, the order of the feed) must be what the memory model gives in one of the
sequential orders that real time allows (:mod:`~tests.statements.oracle`); ``verify`` must find nothing.
``python -m tests.statements`` prints how much there was, and who made whom retry (docs/conflict-matrix.md).
"""
