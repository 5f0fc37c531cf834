"""Leases with fencing tokens: time-limited ownership of a name, and the number that proves it inside a commit.

*Time decides only who may take over; the token decides safety.* The token of a lease grows with each acquisition,
release and break. A commit under a lease requires its token in the same statement that writes. So a holder that was
paused, cut off, or has a wrong clock changes nothing once another process has the lease.

``book``       the port: the promises of a book of leases, in a table or as objects in a bucket
``database``   the book in the store's own database
``validity``   how long a holder may believe that it holds the lease, by three clocks, from before the request
``lease``      the lease as its holder has it; ``heartbeat`` renews it
``leases``     acquires leases, in the order of arrival
``staging``    stages work outside the store, where no reader sees it, and publishes it in one fenced commit
``in_store``   all these parts for one store: ``store.leases``
``objects/``   the book as objects with conditional writes: ``client`` sends requests, ``cells`` settles
               compare-and-swap on lock files, ``book`` keeps the promises; ``lock_file`` is our format, ``hudi`` is
               the format of Apache Hudi
"""
