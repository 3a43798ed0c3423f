"""One attempt: launch, messages, ending and retries."""
