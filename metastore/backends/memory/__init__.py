"""The reference model: the same answers from dictionaries. Property tests compare the databases with it."""
