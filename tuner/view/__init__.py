"""What people see in a terminal or a log while a study goes on."""
