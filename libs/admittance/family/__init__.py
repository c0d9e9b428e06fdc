"""Families of concurrent admission as values: a parent's variants, and which may be tried when.

Pure. The variant-controller, the scheduler and the workload-controller use the same functions, so
they cannot disagree. Source: docs/spec/lifecycle.md#4, KEP-8691.
"""
