"""The output of jobs: the pipes that bring it, and the files that keep it."""
