"""Quota: cohort trees, the catalog of the configuration, required checks, and labels."""
