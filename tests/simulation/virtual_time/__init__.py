"""Time that jumps to the next event, and processes that are killed, paused and watched."""
