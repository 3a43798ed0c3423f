"""The pages of the documentation; `docs.generate` writes those that come from the code."""
