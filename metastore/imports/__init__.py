"""Bring catalogs of other systems into a store: Gravitino's database, any catalog of PyIceberg or Spark."""
