"""The policy of concurrent admission: the variants of a parent, and when each variant may be tried.

The policy is pure. The variant-controller, the scheduler and the workload-controller use the same
functions, so they always agree. Source: docs/spec/lifecycle.md#4, KEP-8691.
"""
