"""Encrypted properties: the environment's keys, the data keys, and the settings for secrets."""
