"""What the document cannot say: the cross-field rules, the translation of requests into work and of results into responses."""
