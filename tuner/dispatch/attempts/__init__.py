"""One attempt: its launch, its messages, its end, and whether it is retried."""
