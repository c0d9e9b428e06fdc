"""The runs of a runner: their claims, their starts, their ends, and the facts about them."""
