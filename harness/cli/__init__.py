"""The command line: list of commands, plug-ins on the command line, `dropbench doctor`."""
