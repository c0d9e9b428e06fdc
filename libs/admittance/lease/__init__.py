"""Who leads what: epochs, liveness and barriers as a pure machine. Imports events only."""
