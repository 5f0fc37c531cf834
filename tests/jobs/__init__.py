"""Jobs: templates filled in, and commands run by servers that die."""
