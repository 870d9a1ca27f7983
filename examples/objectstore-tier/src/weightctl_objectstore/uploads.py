"""What killed writers left: multipart uploads that were neither completed nor aborted.

They are in no listing, and are paid for until somebody aborts them.  obstore has no call to list
them, so these two requests are signed and sent here, in a worker thread.  Aborted is only what lies
below the tier's own prefix, which belongs to this store, and was begun `grace_s` ago or earlier.
Without keys in the environment nothing is swept; a lifecycle rule of the bucket
(AbortIncompleteMultipartUpload) does the same and is advised in any case.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from http.client import HTTPException
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from weightctl.controller.ports import Clock
from weightctl_objectstore.options import Credentials, Options

_EMPTY = hashlib.sha256(b"").hexdigest()
_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_ROUNDS_MAX = 10
_log = logging.getLogger(__name__)


class Uploads:
    """The unfinished uploads below the tier's prefix."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock

    def sweep(self) -> int:
        """Abort what is old enough; how many were.  Blocking; logs what could not be done."""
        keys = self._options.credentials
        if keys is None:
            _log.info("no keys in the environment: unfinished uploads are left to the bucket")
            return 0
        swept = 0
        try:
            for _ in range(_ROUNDS_MAX):  # a page of 1,000 each
                old = list(self._old(keys))
                for name, upload in old:
                    self._send(keys, "DELETE", f"/{name}", {"uploadId": upload})
                swept += len(old)
                if not old:
                    break
        except (OSError, HTTPException, ValueError) as error:
            _log.warning("unfinished uploads in %s stay: %s", self._options.where, error)
        if swept:
            _log.info("aborted %d unfinished uploads in %s", swept, self._options.where)
        return swept

    def _old(self, keys: Credentials) -> Iterator[tuple[str, str]]:
        """Name and id of each upload on the first page that a killed writer left."""
        prefix = f"{self._options.prefix}/"
        page = self._send(keys, "GET", "", {"prefix": prefix, "uploads": ""})
        until = datetime.fromtimestamp(self._clock.wall_ms() / 1000 - self._options.grace_s, tz=UTC)
        for upload in _UPLOAD.findall(page):
            name, begun = _text(upload, "Key"), _text(upload, "Initiated")
            if name.startswith(prefix) and datetime.fromisoformat(begun) <= until:
                yield name, _text(upload, "UploadId")

    def _send(self, keys: Credentials, method: str, path: str, query: dict[str, str]) -> str:
        url = urlsplit(self._options.endpoint)
        path = quote(f"/{self._options.bucket}{path}")
        asked = urlencode(sorted(query.items()), quote_via=quote, safe="")
        headers = self._signed(keys, f"{method}\n{path}\n{asked}", url.netloc)
        request = Request(  # noqa: S310 - http or https, as the options were checked
            f"{url.scheme}://{url.netloc}{path}?{asked}", headers=headers, method=method
        )
        with urlopen(request, timeout=self._options.deadline_s) as answer:  # noqa: S310 - as above
            return str(answer.read().decode())

    def _signed(self, keys: Credentials, asked: str, host: str) -> dict[str, str]:
        """The headers of a request without a body: AWS Signature Version 4."""
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC)
        stamp = moment.strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        names = ";".join(headers)
        canonical = hashlib.sha256(f"{asked}\n{lines}\n{names}\n{_EMPTY}".encode()).hexdigest()
        scope = f"{stamp[:8]}/{self._options.region}/s3/aws4_request"
        key = f"AWS4{keys.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{canonical}".encode()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.key_id}/{scope}, SignedHeaders={names}, "
            f"Signature={hmac.digest(key, text, 'sha256').hex()}"
        )
        return headers


def _text(upload: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", upload, re.DOTALL)
    if found is None:
        raise ValueError(f"the object store's list of uploads has no {tag}")
    return unescape(found[1])
