"""What families lack, so that they become what policy asks for. Pure."""
