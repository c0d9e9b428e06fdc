"""Processes of Admittance: forked, started, or played in the process of the tests."""
