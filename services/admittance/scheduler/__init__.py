"""The scheduler takes the workloads at the heads of queues, finds flavors for them, and reserves
quota.

Consumes: the bucket, in the order of its revisions; epochs and echoes of barriers. Publishes:
decisions such as ``assigned`` and ``refused``, fenced with the epoch of their domain. Owns: the
stored usage of LocalQueues. All other state of the scheduler is in memory; after a restart the
scheduler reads the bucket. Leadership: per domain; the running instances share the domains.
"""
