"""A pool of machines as a provider of capacity: books pods on machines that are there, or boots
them. Configured by MachinePool manifests, which are applied like any others.
"""
