"""The manifests: a Struct for each kind, its defaults and its validation rules. Pure.

The shapes are Kueue's (``kueue.x-k8s.io/v1beta1`` and ``v1beta2``) plus the fields of the design
proposals. This package imports no other package of Admittance.
"""
