"""Studies that go into another study, file or database: copy, export and import."""
