"""Read what one file says: its columns and figures."""
