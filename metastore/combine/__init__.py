"""Send requests together that wait at the same time: ``lane.py`` has the queue, ``combiner.py`` chooses requests."""
