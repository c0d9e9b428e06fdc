"""Requests of programs and commands: submit, wait, watch, explain."""
