"""The parts that the two SQL databases share: tables, reads, gc, statistics."""
