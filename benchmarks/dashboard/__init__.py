"""What a page of the dashboard costs, beside optuna-dashboard on the same database."""
