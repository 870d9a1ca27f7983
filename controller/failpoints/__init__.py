"""Failpoints: named places where a process dies, stops or fails on request.  Layer: failpoints.

Off unless the environment variable WEIGHTCTL_FAILPOINTS is set; then `wiring` puts them around each
tier and the journal's connection.  Without it nothing of this package is even imported.
"""
