"""A large and skewed store, and what each call costs in it at two sizes."""
