"""Programs of users, read before they run: their text, calls and the studies that they make."""
