"""A time-stamp authority on the loopback: OpenSSL answers RFC 3161 queries, so that the client meets another implementation."""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONFIG = """
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha384, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
[root]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
"""


class TimeStampServer:
    """Use as a context manager. `roots` is the PEM of its root; with `refuse` it answers with a refusal."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.roots, self.refuse = folder, folder / "root.pem", False

    def __enter__(self) -> TimeStampServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tsa.cnf").write_text(CONFIG.format(folder=self.folder))
        (self.folder / "serial").write_text("01")
        self._certificates()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = self.rfile.read(int(self.headers["Content-Length"]))
                answer = owner.answer(query)
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/tsa"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, query: bytes) -> bytes:
        """A reply to a query; a query OpenSSL cannot read gets a refusal."""
        (self.folder / "query.tsq").write_bytes(query[:-3] if self.refuse else query)
        self._openssl(
            *("ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query.tsq", "-out", "reply.tsr"),
            *("-signer", "leaf.pem", "-inkey", "leaf.key"),
        )
        return (self.folder / "reply.tsr").read_bytes()

    def _certificates(self) -> None:
        for name, subject in (("root", "/CN=test root"), ("leaf", "/CN=test authority")):
            key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
            self._openssl("req", "-new", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        ends = ("-days", "30", "-sha256", "-extfile", "tsa.cnf")
        self._openssl("x509", "-req", "-in", "root.csr", "-signkey", "root.key", "-out", "root.pem", "-extensions", "root", *ends)
        issued = ("-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-out", "leaf.pem", "-extensions", "leaf")
        self._openssl("x509", "-req", "-in", "leaf.csr", *issued, *ends)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True)
