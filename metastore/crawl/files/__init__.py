"""Find the files of a lake and open them."""
