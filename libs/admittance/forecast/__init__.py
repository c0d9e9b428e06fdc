"""When waiting workloads of a cohort tree will start: a lean model that is played many times with
drawn run times. Source: `docs/decisions/` has the measurements."""
