"""Traces of workloads, made from the facts of the log alone."""
