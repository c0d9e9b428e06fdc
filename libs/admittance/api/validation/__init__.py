"""The rules of manifests: what is wrong with one, and what may not change in it."""
