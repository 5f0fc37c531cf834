"""The port: the commit as a value, the operations of a backend, and the rows that the operations return."""
