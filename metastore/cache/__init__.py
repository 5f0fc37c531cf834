"""What was read, kept: each read of it is as true as one from the database. docs/cache.md has the proof."""
