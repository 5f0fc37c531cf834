"""Attempts, the bodies of calls: each reads through a view, decides, and proposes a commit. Users do not call them."""
