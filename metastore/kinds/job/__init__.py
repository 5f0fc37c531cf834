"""Jobs: templates of commands, and runs of them."""
