"""A Kubernetes cluster as a provider of capacity: each request becomes a ProvisioningRequest there
with its PodTemplates, and what its conditions tell is answered.
"""
