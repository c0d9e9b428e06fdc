"""The quota that workloads hold: charges, quota that counts once for several workloads, and the
usage of LocalQueues."""
