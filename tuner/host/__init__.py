"""This host: clocks, identities of processes, the installed distribution and its documentation."""
