"""``admit up`` and ``admit serve``: start services, and end them in reverse order."""
