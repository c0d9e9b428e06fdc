"""Access control: what each role may publish and subscribe, and how a nats-server is told.

Pure: a user goes in, permissions or the text of a configuration come out. `roles` is the table of
roles, `border` lists what crosses from the account OUT to the account CORE.
"""
