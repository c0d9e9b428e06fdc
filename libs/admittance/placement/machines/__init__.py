"""What is known of the machines of runners, and the objects that follow from it. Pure."""
