"""Report the records of a run: count them on Spark, draw charts, and write the files."""
