"""The past: positions, views of what was there at one, pins that keep it, what changed between two, and going back."""
