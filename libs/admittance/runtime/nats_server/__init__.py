"""The nats-server of this machine and its users: process, store, accounts, keys, snapshots."""
