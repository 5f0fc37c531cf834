"""The change feed: every committed change in serialization order."""
