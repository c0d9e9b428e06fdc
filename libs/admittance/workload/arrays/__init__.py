"""Arrays as stored: the effects of facts on an array, and the elements that it has. The package is
pure. docs/spec/arrays.md."""
