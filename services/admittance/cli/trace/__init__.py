"""The command `admit trace`."""
