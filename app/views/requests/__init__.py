"""Commands from the browser: permission, results and notes."""
