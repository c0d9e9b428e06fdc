"""The check controller ``kueue.x-k8s.io/provisioning-request``: capacity is obtained before a job
starts. Source: LIFECYCLE 5.
"""
