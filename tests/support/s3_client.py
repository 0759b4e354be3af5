"""A second opinion on S3: a small client that signs by its own code, for what tests ask a server beside
the store under test (make buckets, look at versions, count requests)."""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class S3Client:
    def __init__(self, port, access_key, secret, region="us-east-1"):
        self.port, self.access_key, self.secret, self.region = port, access_key, secret, region

    def _sign(self, method, path, query, headers, body):
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers |= {
            "host": f"127.0.0.1:{self.port}",
            "x-amz-date": stamp,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
        }
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = "\n".join([method, path, query, lines, names, headers["x-amz-content-sha256"]])
        scope = f"{day}/{self.region}/s3/aws4_request"
        hashed = hashlib.sha256(request.encode()).hexdigest()
        key = ("AWS4" + self.secret).encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}").hex()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def ask(self, method, path, query=(), headers=None, body=b""):
        """(status, headers, body) of one request; `path` is not yet encoded."""
        quoted = urllib.parse.quote(path, safe="/~")
        text = "&".join(
            sorted(
                f"{urllib.parse.quote(k, safe='~')}={urllib.parse.quote(v, safe='~')}"
                for k, v in query
            )
        )
        headers = dict(headers or {})
        self._sign(method, quoted, text, headers, body)
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            wire.request(method, quoted + ("?" + text if text else ""), body, headers)
            answer = wire.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            wire.close()

    def make_bucket(self, name):
        status, _, body = self.ask("PUT", "/" + name)
        assert status == 200, (status, body)

    def keys(self, bucket, prefix=""):
        status, _, body = self.ask("GET", "/" + bucket, [("prefix", prefix)])
        assert status == 200, (status, body)
        return [part.split("</Key>")[0] for part in body.decode().split("<Key>")[1:]]

    def uploads(self, bucket):
        status, _, body = self.ask("GET", "/" + bucket, [("uploads", "")])
        assert status == 200, (status, body)
        return body.decode().count("<UploadId>")
