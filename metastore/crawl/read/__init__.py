"""Read the columns and figures of one file."""
