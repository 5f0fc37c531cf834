"""A lake of real data, and the small job that `make run` shows."""
