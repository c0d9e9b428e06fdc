"""``admit bench``: plays Kueue's generator files against a live system and measures the system.

The benchmark plays the part of the runner, as Kueue's benchmark does, and uses public interfaces
only: subjects, requests, the stream.
"""
