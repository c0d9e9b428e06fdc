"""A Kubernetes cluster as a capacity provider: for each request it makes a ProvisioningRequest with
PodTemplates in the cluster, and answers with the conditions of that object.

Consumes: requests of its provisioning classes; ProvisioningRequests of the cluster. Publishes: the
provider's answers to the requests. Owns: the objects in the cluster with the label of this
installation. Leadership: none; all instances work.
"""
