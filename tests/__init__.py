"""The tests of the package, and the servers and data they need."""
