"""Report the records of a run: count them on Spark, draw them, and write them down."""
