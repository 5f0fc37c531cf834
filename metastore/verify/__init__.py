"""Check every invariant over a whole database."""
