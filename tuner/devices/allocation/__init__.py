"""Which free devices a trial gets, and the queue for them."""
