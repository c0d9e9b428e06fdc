"""View models: pure functions from answers of the client to the values that templates print."""
