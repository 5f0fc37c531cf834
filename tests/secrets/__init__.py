"""Encrypted properties beyond the contract: bytes in files, other ways to read, round trips."""
