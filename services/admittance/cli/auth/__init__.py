"""``admit auth``: users of a locked server; ``admit context``: the servers of a person."""
