"""The views of what happened and what was used."""
