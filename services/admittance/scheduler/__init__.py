"""Takes the heads of queues, finds flavors for them, and reserves quota.

Decides: who gets quota in which flavors (`decide`), from a picture of the bucket that is kept up to
date change by change.
Hears: the bucket, in the order of its revisions; epochs and echoes.
Says: ``assigned`` and ``refused``, each fenced by the epoch of its domain.
Owns: no state of its own. What it leads is told by the log; a restart reads the bucket anew.
"""
