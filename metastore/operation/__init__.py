"""One operation over all its attempts: exactly once, in a bounded number of attempts."""
