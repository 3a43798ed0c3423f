"""Machines that are namespaces of this one: their networks, dispatchers, database and faults."""
