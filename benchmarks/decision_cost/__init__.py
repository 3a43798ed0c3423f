"""What a decision of the search costs the dispatcher, by how many trials are stored."""
