"""What is installed, and under which name."""
