"""Relations: tags, policies, owners, members, grants, and relations that callers declare."""
