"""Exports into the databases of other systems."""
