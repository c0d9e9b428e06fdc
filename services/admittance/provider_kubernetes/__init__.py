"""A Kubernetes cluster as a capacity provider: makes a ProvisioningRequest with PodTemplates in the
cluster for each request, and answers with its conditions.

Consumes: requests of its classes; ProvisioningRequests of the cluster. Publishes: answers to the
requests. Owns: the objects with its installation label. Leadership: none; all instances work."""
