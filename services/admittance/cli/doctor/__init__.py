"""``admit doctor``: checks an installation from outside."""
