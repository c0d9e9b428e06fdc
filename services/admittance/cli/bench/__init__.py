"""`admit bench` and its sisters: how fast, how steady, and whether anything is lost.

Reads Kueue's own generator files and drives a live system with them, the runner's part mimicked
as Kueue's benchmark does. Knows the public face only: subjects, requests, the stream.
"""

from __future__ import annotations

from admittance.cli.bench.run import run

__all__ = ["run"]
