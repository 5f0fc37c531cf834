"""The catalog as a data source of Spark: batches, streams, writing."""
