"""This tree beside the tree of an earlier commit, in turns, in one run."""
