"""The dispatcher's loop and its parts. Start reading at `dispatcher`."""
