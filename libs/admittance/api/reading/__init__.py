"""Text and plain values to typed manifests, and back: YAML, defaults, older spellings, Jobs."""
