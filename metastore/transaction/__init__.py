"""Several operations as one commit, and a schema to oneself."""
