"""Nobody starves, nothing happens twice: the progress guarantee, exactly once, marks and the freeze."""
