"""Objects as `admit get` and `admit describe` print them: fields, tables and text."""
