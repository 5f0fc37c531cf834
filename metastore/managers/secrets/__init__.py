"""Properties that are secrets: encrypted before a call becomes a change, revealed, rotated, taken out of history."""
