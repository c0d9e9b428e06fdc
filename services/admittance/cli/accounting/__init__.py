"""Commands about what ran and what was used, and what they print."""
