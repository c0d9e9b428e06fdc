"""Leader election as a pure state machine: epochs, heartbeats and barriers."""
