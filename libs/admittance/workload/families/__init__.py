"""Parents and variants as stored workloads. The policy of families is in `admittance.family`."""
