"""Load tests on Spark: many clients write at once; the results are measured and checked.

Call ``run(url, scenario)`` of :mod:`metastore.loadtest.job`; docs/loadtest.md describes its use. Needs the extra
``spark``. (Nothing is imported here, so that the clients start quickly.)
"""
