"""Documents as texts: PDF, HTML, DOCX and plain ones, read in processes of their own within limits."""
