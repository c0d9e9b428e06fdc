"""A Kubernetes cluster as a capacity provider: for each request for capacity the provider makes a
ProvisioningRequest with PodTemplates in the cluster, and answers the request as the conditions of
the ProvisioningRequest say.

Consumes: requests for capacity of the provider's provisioning classes; ProvisioningRequests of the
cluster. Publishes: the provider's answers to the requests. Owns: the objects in the cluster with
the label of this installation. Leadership: none; all instances are active.
"""
