"""The output of jobs: the files that keep it, the pipes that bring it, its limits, and requests for
it."""
