"""The processes of a job: which jobs a runner may start, the plan of a run, and the shim that
carries out the plan."""
