"""The backends: PostgreSQL, SQLite and memory implement one port."""
