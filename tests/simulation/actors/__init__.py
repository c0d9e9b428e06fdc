"""Who takes part: the services, as thin as their shells, and the world around them."""
