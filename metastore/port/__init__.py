"""What a backend is to the rest: the commit as a value, what a backend does, and the rows it returns."""
