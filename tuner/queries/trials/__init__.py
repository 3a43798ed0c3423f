"""What is read of trials and their attempts."""
