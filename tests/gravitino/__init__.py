"""Gravitino's REST API on the store: with its own Python client, and with plain requests."""
