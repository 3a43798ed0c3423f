"""The loop of one dispatcher, and the parts that it is made of; `dispatcher` is where to begin."""
