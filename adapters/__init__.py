"""The tiers of weightctl: one plugin a medium, found by the entry-point group `weightctl.tiers`.

Layer: beside the controller; a tier imports ports, errors and the values that ports speak in, and
no other tier. Invariant: this package is only ever imported as `weightctl.adapters`; a bare
`adapters` belongs to another, well-known distribution whose files it must never shadow.
"""

if __name__ != "weightctl.adapters":
    raise ImportError(  # the three-part form is for the person who reads the traceback
        f"cannot import {__name__!r}\n"
        "why: bare_import_name: this folder is the package 'weightctl.adapters'\n"
        "next: write 'import weightctl.adapters'; in a checkout run 'make venv' first"
    )
