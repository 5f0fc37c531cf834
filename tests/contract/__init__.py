"""One contract for all backends: memory, SQLite, PostgreSQL."""
