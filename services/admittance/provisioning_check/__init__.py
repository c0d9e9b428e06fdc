"""The check controller ``kueue.x-k8s.io/provisioning-request``: obtains capacity before a job
starts.

Consumes: AdmissionChecks, their configuration, flavors, request records and workloads from the
bucket; answers and heartbeats of providers. Publishes: ``requested`` and ``cancelled`` to
providers; the verdicts of this controller's checks; what providers outside write to the bucket of
statuses. Owns: the request records (``provisioningrequest.>``). Leadership: one active instance.
Source: docs/spec/lifecycle.md#5.
"""
