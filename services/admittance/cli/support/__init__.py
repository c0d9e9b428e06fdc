"""Shared by all commands: options, errors, the connection, kinds and output."""
