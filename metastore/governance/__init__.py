"""Who may do what: privileges and the decision (both pure), the evidence that it rests on, and what a user sees."""
