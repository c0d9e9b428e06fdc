"""The core of the array-controller: computes the facts to publish so that each array has the
elements that it asks for. The core is pure. docs/spec/arrays.md."""
