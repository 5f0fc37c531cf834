"""Imports from other systems: Gravitino, PyIceberg, Spark."""
