"""All cores on one virtual clock and one in-memory log, with everything that can go wrong.

Everything random comes from one seed, so a run that broke an invariant can be told and played
again: ``python -m simulation --seed N``.
"""
