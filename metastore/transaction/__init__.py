"""Several operations as one commit, and a schema that one process writes alone."""
