"""Keeps a schedule on the bus for every time that a workload waits for.

Decides: which schedules the stored workloads need (`admittance.workload.due_times`), and which
schedules to set or cancel.

Consumes: workloads and AdmissionChecks, from the bucket; the existing schedules. Publishes:
schedules on the stream of timers; the bus publishes ``timer.due`` for each when it is due. Owns:
that stream. The workload-controller decides what a due time means for a workload. Leadership: one
active instance."""
