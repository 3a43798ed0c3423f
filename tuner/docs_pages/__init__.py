"""Pages of the documentation that are generated from the code, and the site that shows them."""
