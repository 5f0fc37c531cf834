"""Send many requests in one message to PostgreSQL: its statements, and the meaning of their rows.

The members of a batch are independent of each other. So no single gate guards all writes, as in a commit: each written
row joins the result of its own member. The locks are taken in the order of every other statement: guards by id, then
entities by id. All of them are taken before the first position is drawn.

The statements are planned once, for arrays of unknown length: the planner takes each for 10 rows. Each condition on a
column lowers that estimate, and for an estimate of one row it plans a nested loop: 64 x 64 steps. So the CTEs evaluate
all conditions into one column (:func:`~metastore.backends.postgres.together.guards.flag`), which the planner expects to
be true for half of the rows. Then it joins by a hash table.
"""
