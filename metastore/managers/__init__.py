"""What callers do with entities, kind by kind."""
