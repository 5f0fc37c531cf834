"""The past: views of the store at a position, pins that keep a position, differences between two positions, reverts."""
