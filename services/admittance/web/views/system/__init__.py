"""View models of the pages about the system: machines, checks, health."""
