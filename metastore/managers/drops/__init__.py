"""Drops in steps: announced, started, and finished or rolled back; another process can take over at any step."""
