"""A service as a process: settings, start, supervision, health and end."""
