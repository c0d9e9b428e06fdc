"""The disk that jobs use outside of their output: how much there is of it, and how it is freed."""
