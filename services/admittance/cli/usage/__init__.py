"""The command `admit usage`."""
