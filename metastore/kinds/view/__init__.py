"""Views: the document and its changes."""
