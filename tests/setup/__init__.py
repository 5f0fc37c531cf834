"""What a fresh machine needs before anything runs."""
