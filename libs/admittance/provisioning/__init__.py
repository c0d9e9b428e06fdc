"""Capacity that is asked for before a job starts: what is asked, and what its answers mean. Pure.

Source: LIFECYCLE 5.
"""
