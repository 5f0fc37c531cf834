"""Rights: the privileges, the decision (both pure), the evidence of a decision, and a user's view of the reads."""
