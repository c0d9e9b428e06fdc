"""Takes the heads of queues, finds flavors for them, and reserves quota.

Consumes: the bucket, in the order of its revisions; epochs and echoes of barriers.
Publishes: decisions such as ``assigned`` and ``refused``, fenced with the epoch of their domain.
Owns: the stored usage of LocalQueues. All other state is in memory; a restart reads the bucket.
Leadership: per domain. The running instances share the domains.
"""
