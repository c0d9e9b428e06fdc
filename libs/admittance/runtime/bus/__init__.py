"""NATS: connections, publishing, the bucket, consumers, streams, timers and micro endpoints."""
