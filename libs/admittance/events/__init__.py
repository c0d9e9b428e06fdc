"""The wire: one Struct per fact, the subjects they travel on, and the codec.

Pure: imports msgspec and nothing of ours. Everything that crosses the bus is decoded and
encoded here, and nowhere else.
"""
