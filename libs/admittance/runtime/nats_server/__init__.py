"""nats-servers as child processes: one on a data folder, or several as a cluster."""
