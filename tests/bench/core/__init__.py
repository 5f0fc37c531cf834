"""The core: one commit, one connection, one schema. ``python -m tests.bench.core [--quick] [--only NAME]``."""
