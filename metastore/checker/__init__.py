"""The history checker: compares what clients saw with what the feed says happened. See docs/correctness.md."""
