"""The retry layer: what is tried again, how often, and how long is waited in between."""
