"""The embedded Weight Metadata Store: in-memory state beside a durable SQLite journal.

Layer: store. The invariant of the whole package is "durable before visible": the in-memory state is
at every moment exactly what the log on disk says up to its last published sequence. Nothing is
imported here, so that `reading` stays cheap for commands that only ask.
"""
