"""The manifests: one Struct per kind, its defaults and its validation rules.

The shapes are Kueue's (``kueue.x-k8s.io/v1beta1`` and ``v1beta2``) plus the fields of the design
proposals. Pure: imports msgspec and a YAML reader, and no other room.
"""
