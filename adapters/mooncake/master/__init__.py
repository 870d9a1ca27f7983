"""What the Master tells over HTTP, which takes no lease; and which Master that is.

Invariant: an answer that is not wholly understood is an error, and never an empty answer.
"""
