"""The core of the scheduler: takes manifests and stored workloads, makes decisions. The whole
package is pure.
"""
