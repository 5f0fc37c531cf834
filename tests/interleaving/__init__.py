"""Every interleaving of small programs: calls of the port are atomic, and each order of them is looked at.

A process is a deterministic function of the answers to its calls. So it needs no thread: to learn its next call, the
explorer lets it go on from where it stopped, or, for a second answer there, runs it from its start with the answers so
far (:mod:`~tests.interleaving.process`). It keeps the result. The database is a value too
(:mod:`~tests.interleaving.world`). The explorer walks through the graph of (database, answers of each process, time,
faults), breadth first. Two schedules that lead to equal states are one from there on. That loses nothing, and the
number of schedules is still exact (:mod:`~tests.interleaving.explore`).
``python -m tests.interleaving`` prints the figures.
"""
