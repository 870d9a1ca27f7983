"""A weightctl tier in a bucket of an S3-compatible object store.

`create` is what the entry point `objectstore` names; the other modules are:

    options.py   what a person may set, checked
    names.py     how replicas are called in the bucket (pure)
    bucket.py    the border to obstore: a deadline on each call, errors that the loop knows
    medium.py    whose bucket it is: the marker object
    looking.py   what lies there, and what that means for a member
    room.py      how much is used
    storing.py   replicas on their way in
    uploads.py   what killed writers left
    spread.py    many small things at once
    tier.py      `weightctl.controller.ports.Tier` over all of these
"""

from collections.abc import Mapping
from pathlib import Path

from weightctl.controller.ports import Tier, TierContext
from weightctl_objectstore.bucket import Bucket
from weightctl_objectstore.medium import Medium
from weightctl_objectstore.options import parse
from weightctl_objectstore.tier import ObjectStoreTier
from weightctl_objectstore.uploads import Uploads

__all__ = ["create"]


def create(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Build the tier `name`; nothing is asked of the object store yet.  Raises ConfigError."""
    chosen = parse(name, options)
    bucket = Bucket(chosen)
    medium = Medium(
        bucket,
        where=chosen.where,
        remembered=Path(context.state_dir) / "tiers" / f"{name}.uuid",
        context=context,
        adopt=chosen.adopt,
    )
    uploads = Uploads(chosen, context.clock)
    return ObjectStoreTier(
        name, options=chosen, bucket=bucket, medium=medium, uploads=uploads, context=context
    )
