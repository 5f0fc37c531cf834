"""Every interleaving of small programs: calls of the port are atomic, and each order of them is looked at.

A process is a deterministic function of the answers to its calls. So it needs no thread: to know what it
does next, it is run from its start with the answers so far (:mod:`~tests.interleaving.process`), and that
is kept. The database is a value too (:mod:`~tests.interleaving.world`). What is explored is the graph of
(database, answers of each process, time, faults), breadth first; two schedules that lead to equal states
are one from there on, which loses nothing, and the number of schedules is still counted exactly
(:mod:`~tests.interleaving.explore`). ``python -m tests.interleaving`` prints the figures.
"""
