"""The history checker: what clients were told, held against what the store says happened. See docs/correctness.md."""
