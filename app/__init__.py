"""The dashboard: how a study converges, and what every device does. It only reads."""
