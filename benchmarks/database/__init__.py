"""The database side by side with Optuna's: what it costs, how quick it is, how far it goes."""
