"""The retry layer: which calls are tried again, how often, and how long they wait between attempts."""
