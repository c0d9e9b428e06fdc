"""Users on disk: their keys, the folder of `admit auth`, and how a running server learns of a
change."""
