"""Quota: cohort trees, the catalog of queues and flavors, required checks, labels."""
