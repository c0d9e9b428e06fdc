"""Preemption: searches for victims, quota handover, quota reduction, the loop guard."""
