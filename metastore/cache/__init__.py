"""Keep answers of the database in memory.

A read from the cache is as correct as one from the database: see docs/cache.md.
"""
