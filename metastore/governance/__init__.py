"""Who may do what: privileges, and the decision from evidence. Pure; the managers and the store act on it."""
