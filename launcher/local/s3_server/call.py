"""The argument of every operation of the embedded S3 server, and the forms of their responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.local.s3_server.documents import Pairs, S3Error, document
from launcher.local.s3_server.storage.store import Store
from launcher.local.s3_server.storage.uploads import Uploads
from launcher.local.s3_server.wire import Request, Response

_BODY_LIMIT = 8 * 1024 * 1024  # bytes of an XML body; 10,000 parts or 1,000 keys to delete need less


@dataclass(frozen=True)
class Call:
    """One parsed request. `bucket` and `key` are empty if the path does not name them."""

    store: Store
    uploads: Uploads
    request: Request
    bucket: str
    key: str
    query: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        """Return a query parameter that is a count. Raises S3Error InvalidArgument."""
        text = self.query.get(name) or str(default)
        if not (text.isascii() and text.isdigit()):
            raise S3Error("InvalidArgument", ArgumentName=name, ArgumentValue=text)
        return int(text)

    def document_body(self) -> bytes:
        """Return the whole XML body of a request. Raises S3Error MalformedXML if it is too large."""
        content = bytearray()
        while block := self.request.body.read(_BODY_LIMIT):
            content += block
            if len(content) > _BODY_LIMIT:
                raise S3Error("MalformedXML")
        return bytes(content)


def xml(root: str, pairs: Pairs) -> Response:
    """Return a response that is an XML document."""
    return Response(200, {"Content-Type": "application/xml"}, document(root, pairs))
