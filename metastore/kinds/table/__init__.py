"""Tables: the document, its layout, its changes."""
