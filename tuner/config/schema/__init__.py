"""What a study file can hold, for editors and readers: JSON Schema, reference, template."""
