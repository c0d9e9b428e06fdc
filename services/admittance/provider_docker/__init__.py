"""A container engine as a provider of capacity: one worker container for each pod that is asked
for, with its limits of cpu and memory, for as long as somebody asks for it.
"""
