"""What every command uses: options, errors, the connection, kinds and output."""
