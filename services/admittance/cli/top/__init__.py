"""``admit top``: a screen that shows queues, what runs and what waits, and follows them."""
