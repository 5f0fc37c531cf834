"""The schema: what the migrations make, on what they run, and who may use it."""
