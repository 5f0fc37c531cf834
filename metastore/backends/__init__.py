"""The backends: PostgreSQL, SQLite and memory keep the promises of one port."""
