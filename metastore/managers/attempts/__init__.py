"""The body of a call, as an attempt: read through a view, decide, and propose a commit. Users do not call these."""
