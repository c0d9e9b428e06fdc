"""Sums of used quota, kept by the active workload-controller: it folds the facts `QuotaReleased` of
the log into summaries by day and month, and answers ``admit.api.usage``."""
