"""The files of jobs: brings inputs to the folder of a job, and keeps its outputs."""
