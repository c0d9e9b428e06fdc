"""The core of the scheduler: objects and workloads in, decisions out. Pure."""
