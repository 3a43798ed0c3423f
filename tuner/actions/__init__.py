"""Changes to stored studies: copy, delete, enqueue, export, import, retry, control commands."""
