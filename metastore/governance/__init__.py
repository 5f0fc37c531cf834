"""Who may do what: privileges and the decision (both pure), the evidence of a decision, and the reads of a user."""
