"""Benchmarks beside `admit bench`: each is a module, run from the root of the repository."""
