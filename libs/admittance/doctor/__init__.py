"""What is wrong with an installation, found from outside: each function returns findings, each with
what to do. `admit doctor` prints them, and `Client.health` returns them as rows.

Questions to services go through the client. What the servers store is read on the bus itself, since
the doctor also looks for what no service can read.
"""
