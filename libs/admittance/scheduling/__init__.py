"""The core of the scheduler: objects and workloads in, decisions out. The whole package is pure."""
