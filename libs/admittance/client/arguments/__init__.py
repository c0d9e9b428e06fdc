"""Arguments of calls and options of commands: how they are spelled, and what is wrong with one."""
