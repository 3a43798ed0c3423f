"""Single questions of the search: how it begins and ends, and where it meets a special case."""
