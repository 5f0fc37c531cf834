"""Drops in steps: announced, started, and finished or rolled back, by one process after another."""
