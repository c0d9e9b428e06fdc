"""What benchmarks share: command lines, loads, jobs with a trail, fleets, waits, turns.

A benchmark asks the system through `admittance.client` (`Link` and its requests). Only what plays a
service or a load at a rate publishes and receives facts itself.
"""
