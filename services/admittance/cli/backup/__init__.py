"""``admit backup`` and ``admit restore``: all streams of a deployment as one file."""
