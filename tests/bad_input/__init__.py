"""Bad input of every kind: a typed error in one line, nothing written, no password shown."""
