"""The pages: each asks the client, builds its view model, and prints it."""
