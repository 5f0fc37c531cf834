"""The book of leases as objects with conditional writes, in a bucket or a folder."""
