"""What people and scripts do with stored studies, also while they run.

Each verb has a module that reads or changes the database and knows nothing of how it is shown,
and one that makes text of what the first returns.
"""
