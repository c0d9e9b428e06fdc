"""A nats-server with JetStream in memory and in virtual time: the part that the runtime uses.

It is spoken to in the protocol of NATS. One script is played to it and to a real nats-server, and
the tests of `tests/integration/bus` run against both: what it answers is what the real one answers.
"""
