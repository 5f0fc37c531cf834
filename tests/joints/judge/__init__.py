"""The judge: it reads the record of a run, and reports the contradictions in it."""
