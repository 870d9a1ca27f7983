"""One module per family of verbs, imported when one of its verbs is typed.  Layer: cli.

Each verb is a function `(args, console) -> exit code`.
"""
