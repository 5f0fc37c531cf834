"""What the records of a run say: counted on Spark, drawn, and written down."""
