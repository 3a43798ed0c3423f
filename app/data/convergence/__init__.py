"""The best value over time, forecasts and rungs."""
