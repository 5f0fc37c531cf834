"""Check all invariants of a whole database."""
