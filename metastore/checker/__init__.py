"""The history checker: compares the clients' records with the change feed. See docs/correctness.md."""
