"""The command `dropbench db`, and the options and output of commands that print results."""
