"""What the conformance kits have in common: those of check controllers and of providers.

A kit plays Admittance's part on a real bus, in a namespace of its own: `stand` asks and listens,
`faults` are what one message has wrong, `cases` is what is tried with any program, `program` the
process under trial and the server it is tried on, `report` what comes out.
"""
