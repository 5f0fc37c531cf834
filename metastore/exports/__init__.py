"""Bring the catalog into the databases of other systems."""
