"""Hours of kills, stops, cut connections and restarts, and then an exact account: ``python -m tests.soak``."""
