"""A connection is lost at each message of each call that writes: what the caller is told must be true."""
