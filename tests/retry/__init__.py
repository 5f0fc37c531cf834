"""The retry layer: its policy, its runner, and what it makes of the databases' error codes."""
