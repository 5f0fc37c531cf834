"""The databases: one port, and those who keep its promises."""
