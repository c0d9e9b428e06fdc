"""Leader election on the bus, and services of which one instance is active."""
