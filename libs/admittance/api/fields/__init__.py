"""Single fields: their syntax and rules, the quantities in them, and the problems they have."""
