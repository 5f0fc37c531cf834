"""SQLite, the embedded default: one short write transaction for each commit."""
