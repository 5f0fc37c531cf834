"""A deterministic model of the lease mode: members, writers, readers and a database, one atomic step at a time."""
