"""The files of jobs: which ones a job brings and leaves, and how they reach its folder."""
