"""The command line: names, arguments, options, help. Each command imports the module that does the
work when it runs, so that help and completion are fast."""
