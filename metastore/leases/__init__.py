"""Leases with fencing tokens: time-limited ownership of a name, and the number that proves it inside a commit.

*Time decides only who may take over; the token decides safety.* The token of a lease grows with each
acquisition, release and break. A commit under a lease requires its token in the same statement that writes. So a
holder that was paused, cut off, or has a wrong clock changes nothing after another process has the lease.

``book``       the port: what a book of leases promises, whether it is a table or objects in a bucket
``database``   the book in the store's own database
``validity``   how long a holder may believe that it holds the lease: three clocks, from before the request
``lease``      the lease in the hands of its holder; ``heartbeat`` renews it
``leases``     acquire leases, in the order of arrival
``staging``    work outside the store: staged where no reader sees it, published in one fenced commit
``in_store``   all of this for one store: ``store.leases``
``objects/``   the book as objects with conditional writes: ``client`` sends requests, ``cells`` settles
               compare-and-swap on lock files, ``book`` keeps the promises; ``lock_file`` is our format, ``hudi`` is
               the format of Apache Hudi
"""
