"""The operations of callers on entities, kind by kind."""
