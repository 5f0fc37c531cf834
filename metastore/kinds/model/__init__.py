"""Models and their versions: the documents and their changes."""
