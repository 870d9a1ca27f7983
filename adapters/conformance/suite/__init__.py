"""The contract of a tier as pytest cases, to subclass.  Layer: conformance.  Needs pytest.

The cases say what went wrong by plain `assert`; pytest explains those only in modules that it was
told of before they are imported, so they are named here.
"""

import pytest

_MODULES = (
    "cancelled",
    "capabilities",
    "cases",
    "distinction",
    "faults",
    "hanging",
    "histories",
    "leaks",
    "life",
    "looking",
    "loop",
    "material",
    "media",
    "owners",
    "removal",
    "replicas",
    "sources",
)

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))
