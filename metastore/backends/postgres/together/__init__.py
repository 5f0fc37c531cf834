"""Send many requests in one message to PostgreSQL: its statements, and the meaning of their rows.

The members of a batch are independent. So the writes do not depend on one common result, as in a commit: each written
row joins the result of its own member. The locks are taken in the same order as in every other statement: guards by id,
then entities by id. All locks are taken before the first position is drawn.

The statements are planned once, for arrays of unknown length, which the planner takes for 10 rows. Each condition on a
column lowers this estimate, and for one estimated row it plans a nested loop: 64 x 64 steps. So the CTEs evaluate all
conditions into one column (:func:`~metastore.backends.postgres.together.guards.flag`). The planner expects that it is
true for half of the rows, and joins by a hash table.
"""
