"""What all commands share: options, errors, the connection, kinds of objects and output."""
