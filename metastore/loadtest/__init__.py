"""Load tests on Spark: what happens when many write at once, measured and checked.

``run(url, scenario)`` of :mod:`metastore.loadtest.job` is all there is to call; docs/loadtest.md says how it is used.
Needs the extra ``spark``. (Nothing is imported here, so that the clients start quickly.)
"""
