"""The client of NATS: connections, logins, contexts, the protocol, JetStream, micro services."""
