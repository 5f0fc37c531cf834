"""Listings, page by page, and the tokens between the pages."""
