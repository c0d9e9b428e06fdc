"""Victims: classical and fair sharing, planned preemptions, quota reduction, the loop guard."""
