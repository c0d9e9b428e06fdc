"""Parents and variants as stored workloads. What policy wants of them: `admittance.family`."""
