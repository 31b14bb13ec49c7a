"""What the document cannot say: cross-field rules, and the way from requests to work and from results to responses."""
