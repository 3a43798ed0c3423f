"""The pages: widgets, and the figures and tables between them."""
