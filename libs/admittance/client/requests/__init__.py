"""What clients and commands ask of the system, as functions on a `Link`."""
