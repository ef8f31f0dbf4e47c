"""Tables: rows as data, formats (Markdown, LaTeX, CSV), published numbers to compare with."""
