"""Users on disk: the folder of `admit auth`, the keys of users, and the reload of running servers
after a change."""
