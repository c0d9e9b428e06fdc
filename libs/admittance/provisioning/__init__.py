"""Capacity requested before a job starts: what Admittance requests, and what the provider's answers
mean. Pure. Source: docs/spec/lifecycle.md#5.
"""
