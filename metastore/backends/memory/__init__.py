"""The reference model, which gives the same answers from dictionaries. Property tests compare the databases with it."""
