"""The machine below a runner: the port that the runner uses, and this machine behind it."""
