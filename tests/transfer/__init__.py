"""Export and import: nothing is lost, nothing is half, nothing bad comes in."""
