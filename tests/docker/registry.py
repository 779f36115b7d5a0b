"""A registry of images at 127.0.0.1, as the distribution specification has it for those who fetch:
one image, in one layer."""
import gzip
import hashlib
import http.server
import json
import threading

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry:
    def __init__(self, tar):
        with open(tar, "rb") as file:
            plain = file.read()
        layer = gzip.compress(plain, 1)
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {},
                             "rootfs": {"type": "layers", "diff_ids": [digest(plain)]}}).encode()
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json",
                       "size": len(config), "digest": digest(config)},
            "layers":
            [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": len(layer),
              "digest": digest(layer)}]}).encode()
        self.blobs = {digest(config): config, digest(layer): layer,
                      digest(self.manifest): self.manifest}
        self.asked = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.image = "127.0.0.1:%d/team/python" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(registry):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                registry.asked.append(self.path)
                name = self.path.rsplit("/", 1)[1]
                body, kind, status = b"{}", "application/json", 200
                if "/manifests/" in self.path and (name in registry.blobs or name == "3.1"):
                    body, kind = registry.manifest, MANIFEST
                elif "/blobs/" in self.path and name in registry.blobs:
                    body, kind = registry.blobs[name], "application/octet-stream"
                elif self.path != "/v2/":
                    body, status = (
                        b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
                        404)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                if "/manifests/" in self.path:
                    self.send_header("Docker-Content-Digest", digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *words):
                pass

        return Handler

    def close(self):
        self.server.shutdown()
        self.server.server_close()
