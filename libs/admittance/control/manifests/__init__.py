"""Manifests as the workload-controller keeps and changes them. Pure."""
