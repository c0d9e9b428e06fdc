"""One scheduling cycle with its steps (heads, nominate, order, process, requeue), and the flavor
assigner.
"""
