"""The judge: it reads the record of a run, and says what in it cannot be."""
