"""Every interleaving of small programs: calls of the port are atomic, and the explorer runs them in each order.

A process is a deterministic function of the answers to its calls. So it needs no thread: to learn its next call, the
explorer lets the process continue from where it stopped, or, for a second answer there, runs it from its start with the
answers so far (:mod:`~tests.interleaving.process`). The explorer keeps the result. The database is a value too
(:mod:`~tests.interleaving.world`). The explorer walks through the graph of (database, answers of each process, time,
faults), breadth first. Two schedules that lead to equal states count as one from there on. That loses nothing, and the
number of schedules is still exact (:mod:`~tests.interleaving.explore`). ``python -m tests.interleaving`` prints the
figures.
"""
