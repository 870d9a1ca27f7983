"""The command line `weightctl`.  Layer: cli, the outermost.

`parser` says what can be typed, `commands` does it, `output` prints documents, `exit_codes` says
how it went.  Data goes to stdout only; progress, questions and errors go to stderr.
"""
