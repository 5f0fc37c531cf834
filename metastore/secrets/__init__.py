"""Encrypted properties: the keys of the environment, the data keys, and what a catalog declares secret."""
