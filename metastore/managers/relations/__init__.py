"""Relations: tags, policies, owners, members, grants, and those that callers declare."""
