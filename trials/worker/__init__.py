"""Inside a worker process: function and command workers, and the link to the dispatcher."""
