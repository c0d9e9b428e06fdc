"""Requests and replies of the micro endpoints under ``admit.api.>``."""
