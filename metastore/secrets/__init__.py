"""Encrypted properties: the keys of the environment, the data keys, and which properties are secret."""
