"""Answers in words: `admit` and the web page say the same."""
