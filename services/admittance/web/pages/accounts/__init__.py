"""The pages about what happened and what was used."""
