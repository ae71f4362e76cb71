"""Tables as text: terminal, Markdown, LaTeX, CSV, JSON, Parquet."""
