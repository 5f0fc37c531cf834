"""Concurrent use: real processes and threads, on SQLite and PostgreSQL; what must hold is asserted, never timed."""
