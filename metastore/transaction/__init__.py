"""Several operations as one commit, and a schema for one process alone."""
