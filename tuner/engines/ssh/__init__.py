"""ssh: a dispatcher on each of a list of hosts."""
