"""Leases with fencing tokens: time-limited ownership of a name, and the number that proves it inside a commit.

*Time decides only who may take over; the token decides safety.* The token of a lease grows by one with each
acquisition, release and break. A commit that is made under a lease requires its token in the same statement that
writes, so that a holder who was paused, cut off, or has a wrong clock changes nothing once somebody else has the lease.

``book``       what keeps leases promises: a table of the database, or objects in a bucket
``database``   the book in the store's own database
``validity``   how long the holder may believe that it holds: three clocks, from before the request
``lease``      what the holder has in hand; ``heartbeat`` renews it
``leases``     acquiring, in the order of arrival
``staging``    work outside the store: staged where nobody sees it, published in one fenced commit
``in_store``   all of that for one store: ``store.leases``
``object_…``   the book as objects with conditional writes: ``object_client`` sends requests, ``object_cells`` settles
               compare-and-swap on lock files, ``object_book`` keeps the promises; ``lock_file`` is our format,
               ``hudi`` Hudi's
"""
