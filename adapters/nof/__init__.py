"""The nof tier: replicas on an NVMe namespace, or a plain file, with a layout of its own.

Layer: a tier.  `layout`, `records` and `allocator` are pure; `medium` moves bytes; `header` and
`index` are what lies on the device; `device` is its one writer.
"""
