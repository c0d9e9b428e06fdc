"""A scheduler that is slow on purpose: a twin for the real one, written from the rules alone.

It keeps no cache and no index. Every cycle it builds the tree anew from the objects, sorts every
list anew, and asks every question of the whole tree. It shares no code with the real one, so a
mistake would have to be made twice to go unseen.

``objects`` reads manifests, ``tree`` does the sums, ``queues`` holds who waits, ``assign`` picks
flavors, ``preempt`` and ``fair`` pick victims, ``turns`` says whose turn it is with fair sharing,
``cycle`` puts them together, ``play`` lives through a scenario, ``slow`` with victims that take
their time, and ``draw`` makes scenarios up.
"""
