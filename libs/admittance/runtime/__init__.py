"""The runtime of all services: NATS, the bucket, consumers, clock, settings, logs, traces.

No other package knows NATS. Start with `nats/connection.py` (the connection), `bus/bus.py`
(publishing), `bus/puller.py` (reading the log), `bus/bucket.py` (state) and
`leader/lease_store.py` (leases).
"""

from admittance.runtime.nats import lazy_nats_js

# The call of `lazy_nats_js` comes before any import of nats-py, so that `nats.js` is loaded only
# when a program uses it.
lazy_nats_js.load_at_first_use()
