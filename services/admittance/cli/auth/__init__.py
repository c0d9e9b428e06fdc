"""``admit auth``: users of a locked server."""
