"""What can be typed: names, arguments, options, help. Each command hands over to a module that
does it, imported when it runs, so that help and completion come at once."""
