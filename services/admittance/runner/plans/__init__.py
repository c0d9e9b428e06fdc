"""How an admission becomes the plan of a run."""
