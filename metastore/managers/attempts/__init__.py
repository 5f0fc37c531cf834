"""The body of a call, as an attempt: read through a view, decide, and propose a commit. No call of a user is here."""
