"""Whose a cluster and its objects are: the book of this store, its claim, and its place."""
