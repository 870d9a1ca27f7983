"""The reconciliation controller of weightctl: pure core, store, loop, weight store and CLI.

Layer: the whole of `weightctl.controller`; see `pyproject.toml` for the direction of imports.
Invariant: this package is only ever imported as `weightctl.controller`. Under its bare folder
name each of its modules would exist twice, and its enums and errors would not compare equal.
"""

if __name__ != "weightctl.controller":
    raise ImportError(  # the three-part form is for the person who reads the traceback
        f"cannot import {__name__!r}\n"
        "why: bare_import_name: this folder is the package 'weightctl.controller'\n"
        "next: write 'import weightctl.controller'; in a checkout run 'make venv' first"
    )
