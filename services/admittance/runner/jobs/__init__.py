"""The processes of a job: what a runner may start, the plan of a run, and the shim that carries it
out."""
