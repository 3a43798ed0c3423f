"""Figures from plain data. Independent of the database and Streamlit."""
