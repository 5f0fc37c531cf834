"""Write data sets into the store."""
