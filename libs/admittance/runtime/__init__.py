"""What the services stand on: NATS, the bucket, consumers, clock, settings, logs, traces.

The only room that knows that NATS exists. Settings and order of a commit are told where they are
performed: `bus` (publishing), `puller` (reading the log), `bucket` (state), `lease_io` (who leads).
"""
