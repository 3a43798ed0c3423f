"""Figures from plain data. Nothing here reads a database or knows Streamlit."""
