"""What weightctl says and does for people and scripts, apart from how it is typed or printed.

Layer: api.  `documents` are the stable JSON shapes, `views` build them from records, `reads` answer
from the state directory alone, `verbs` act on an open application, and `control` carries verbs to
a running `weightctl run` over a local socket.
"""
