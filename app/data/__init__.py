"""Reads a database into plain columns. Independent of Streamlit and Plotly."""
