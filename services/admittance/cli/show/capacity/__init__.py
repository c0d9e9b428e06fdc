"""Machines, pools of machines, and requests for capacity, as text."""
