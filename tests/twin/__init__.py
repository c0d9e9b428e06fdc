"""A reference scheduler that is slow on purpose, written from the rules alone.

It keeps no cache and no index. Every cycle builds the tree again from the objects, sorts every
list again, and computes every answer from the whole tree. It shares no code with the product's
scheduler, so a mistake stays hidden only if both schedulers make it.

``objects`` reads manifests, ``tree`` sums quota, ``queues`` holds the waiting workloads,
``assign`` picks flavors, ``preempt`` and ``fair`` pick victims, ``turns`` gives the order with
fair sharing, ``cycle`` runs one cycle, ``play`` runs a scenario, ``slow`` runs a scenario whose
victims stop late, and ``draw`` generates scenarios.
"""
