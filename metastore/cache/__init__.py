"""Keep what is read: a read from the cache is as true as one from the database. docs/cache.md has the proof."""
