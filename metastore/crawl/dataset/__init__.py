"""Join files to data sets: one table each."""
