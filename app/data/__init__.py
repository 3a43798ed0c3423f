"""Reads a database into plain columns and shapes them. Nothing here knows Streamlit or Plotly."""
