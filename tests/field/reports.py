"""What users of neighbouring systems have reported, as kinds of faults, and the tests of each.

The numbers are those of the list that this table was made from; it leaves some out.  A row names
the kind in our own words, what is right instead, and the tests that fail when it is not; or it says
why the kind cannot occur here.  `tests/tidy/test_field_reports.py` holds every row against the
tests that are collected.
"""

from tests.field import reports_of_controllers, reports_of_stores

NUMBERS = (
    *(1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29),
    *(30, 31, 32, 33, 34, 35, 37, 39, 40, 41, 42, 44, 46, 47, 48, 49, 50, 52, 53),
)
"""Every report."""

REPORTS = reports_of_stores.REPORTS | reports_of_controllers.REPORTS
"""The rows by number."""
