"""The wire: one Struct per fact, the subjects of the facts, and the codec.

Pure: this package imports msgspec and no other package of Admittance. Everything that crosses the
bus is decoded and encoded in this package only.
"""
