"""What the scheduler keeps in memory: queues, workloads and domains, kept current by events.

A workload's fields are in groups, and only the modules of one purpose write the fields of a group
(`tools/house_check.py` lists and holds them):

- `StoredFields`: what was read from the bucket. Only the workload's next stored state changes it,
  and a bug that sets the workload aside.
- `AssumedFields`: the decision in flight. The module `assumption` begins it, and ends or undoes it
  with all that it changed.
- `DerivedFields`: the place in a queue and the charged quota, which follow from both. Other modules
  change them with the functions of `queue` and `charging`, never directly.
- `WorkloadInfo`: what one cycle leaves for the next, such as the cursor of a scan.

`SchedulerState` has its fields in the same order. All that is derived can be computed again from
the bucket and the decisions in flight: a new leader does so."""
