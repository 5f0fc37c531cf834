"""The change feed: all committed changes in serialization order."""
