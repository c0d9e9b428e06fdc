"""A container engine as a capacity provider: one worker container for each requested pod, with its
limits of cpu and memory, until the request is cancelled.

Consumes: requests of its classes; events of the engine. Publishes: answers to requests. Owns:
the containers with its installation label. Leadership: one active instance."""
