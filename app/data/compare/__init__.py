"""What trials and studies have in common, and where they differ."""
