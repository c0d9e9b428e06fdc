"""Owns all time of workloads on the bus: says when to look at one again.

Decides: which schedules have to stand, from the workloads as they are stored
(`admittance.workload.due`), and what is to be set or cancelled for that.
Hears: workloads and AdmissionChecks, from the bucket; the schedules that really stand.
Says: schedules on the stream of timers. The bus makes ``timer.due`` of each in its time.
Owns: that stream. What a due time means for a workload, the workload-controller decides.
"""
