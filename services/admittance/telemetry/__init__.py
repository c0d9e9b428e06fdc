"""Exports a trace of each sampled workload with OpenTelemetry.

Decides: nothing. Consumes: the facts about workloads, from the log; the history of a workload that
began before, by ``admit.api.events``. Publishes: spans to a receiver of OTLP over HTTP; nothing on
the bus. Owns: the position of its consumer ``telemetry`` of the log. Leadership: one instance reads
the log; others wait until its consumer is free.
"""
