"""Commands that read and change objects."""
