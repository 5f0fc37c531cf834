"""Functions: the document and its changes."""
