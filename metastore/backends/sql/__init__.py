"""What the two SQL databases share: tables, reads, gc, statistics."""
