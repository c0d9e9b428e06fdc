"""The acts that bring families to the state that the concurrent admission policy requires. Pure."""
