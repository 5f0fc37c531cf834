"""Requests that travel together on PostgreSQL: one message for many, its statements, and what their rows mean.

The members of a batch are independent of each other. So no single gate guards all writes, as in a commit: each row that
is written joins what its own member found. The locks are taken in the order of every other statement: guards by id,
then entities by id. All of them are taken before the first position is drawn.

The statements are planned once, for arrays of unknown length: the planner takes each for 10 rows. Each condition on a
column takes that down, and for what it takes for one row, it plans a nested loop: 64 x 64 steps. So the CTEs judge all
conditions into one column (:func:`~metastore.backends.postgres.together.guards.flag`), which the planner takes for half
of the rows. Then it joins by a hash table.
"""
