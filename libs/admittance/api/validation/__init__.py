"""The rules of manifests: what is wrong with a manifest, and what may not change in an object."""
