"""Programs beside the system: clouds, receivers, monitoring, earlier versions."""
