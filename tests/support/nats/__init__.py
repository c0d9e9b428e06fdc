"""NATS for tests: logins, leases, a client without checks, and subjects of the server."""
