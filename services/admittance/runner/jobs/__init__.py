"""The processes of a job: the shim, and what it does with the plan of a run."""
