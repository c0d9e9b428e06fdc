"""The core of the variant-controller: computes the facts to publish so that each family of variants
matches the family policy. The core is pure."""
