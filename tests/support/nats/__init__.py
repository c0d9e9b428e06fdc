"""NATS for tests: logins, leases, and subjects of the server."""
