"""Backups: the format of the file, how a running deployment is written to it, and how its streams
are restored from it. `admit backup` and `admit restore` are made with this package.
"""
