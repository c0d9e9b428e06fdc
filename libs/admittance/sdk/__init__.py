"""What programs beside Admittance have in common, check controllers and providers of capacity: they
hear what they are asked through a durable, answer on the log, and lose nothing on the way.
"""
