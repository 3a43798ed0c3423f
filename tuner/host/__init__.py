"""This host: clocks, identities of processes, their end by Ctrl-C, the installed distribution."""
