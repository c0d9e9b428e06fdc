"""Many stories: hunts, and mechanisms that are taken out."""
