"""What a runner may start: as which Unix users, which images and folders, and how much. The runner
follows these rules; `admit up` and `admit serve` read them from options, and `admit auth` writes
their file.
"""
