"""Parents and variants as stored workloads. Their policy is in `admittance.family`."""
