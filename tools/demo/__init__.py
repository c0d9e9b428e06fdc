"""The demo of `make demo`: its story, its summary and the system that it runs on."""
