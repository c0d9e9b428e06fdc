"""The core of the variant-controller: computes the facts that make families match policy. The core
is pure."""
