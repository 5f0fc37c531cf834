"""What needs pyspark: an extra, imported only from here."""
