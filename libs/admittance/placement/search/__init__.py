"""The search for machines and devices that hold all pods of a workload. Pure."""
