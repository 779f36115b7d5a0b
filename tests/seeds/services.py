"""What stands in for the world outside on the pages: a model's provider, and the host of the
repository that they name.

Both speak the real protocol, and hold a client to it: the provider refuses a wrong key, and the
repository's host is reached over HTTPS, by its own name, through a proxy.
"""
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading

KEY = "sk-of-the-pages"


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline(), 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if size == 0:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, status, headers, data):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Model:
    """An OpenAI-compatible server; `answer(model, messages)` is what it says, and `asked` what it
    was asked."""

    def __init__(self, answer):
        self.asked = []
        outer = self

        class Handler(Quiet):
            def do_POST(self):
                asked = json.loads(self.body())
                if self.headers.get("Authorization") != "Bearer " + KEY:
                    return self.send(401, [],
                                     b'{"error": {"message": "Incorrect API key provided", "type": '
                                     b'"invalid_request_error"}}')
                outer.asked.append(asked)
                reply = {"id": "c", "object": "chat.completion", "model": asked["model"],
                         "choices": [{"index": 0, "finish_reason": "stop",
                                      "message": {"role": "assistant", "content": answer(
                                          asked["model"], asked["messages"])}}],
                         "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}
                self.send(200, [("Content-Type", "application/json")], json.dumps(reply).encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def environment(self):
        return {"OPENAI_BASE_URL": "http://127.0.0.1:%d/v1" % self.server.server_port,
                "OPENAI_API_KEY": KEY}

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class RepositoryHost:
    """https://github.com/your-org/your-repo, through a proxy (`https_proxy`): git's own server
    program behind a certificate that the client is told of."""

    def __init__(self, directory, files):
        self.directory = directory
        work = os.path.join(directory, "your-org", "your-repo")
        os.makedirs(work)
        for name, text in files.items():
            with open(os.path.join(work, name), "w") as file:
                file.write(text)
        subprocess.run("git init -q && git add . && git -c user.name=n -c user.email=e commit -qm "
                       "first", shell=True, check=True, cwd=work)
        self.certificate, key = os.path.join(directory,
                                             "cert.pem"), os.path.join(directory, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                        "-out", self.certificate, "-days", "2", "-subj", "/CN=github.com",
                        "-addext", "subjectAltName=DNS:github.com"],
                       check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        outer = self

        class Git(Quiet):
            """The smart protocol: `git http-backend` by CGI."""

            def serve(self):
                path, _, query = self.path.partition("?")
                env = {"GIT_PROJECT_ROOT": outer.directory, "GIT_HTTP_EXPORT_ALL": "1",
                       "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                       "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                       "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                       "REMOTE_ADDR": "127.0.0.1",
                       "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                       "PATH": os.environ["PATH"], "GIT_CONFIG_COUNT": "1",
                       "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
                done = subprocess.run(["git", "http-backend"], input=self.body(), env=env,
                                      capture_output=True)
                head, _, data = done.stdout.partition(b"\r\n\r\n")
                headers = [tuple(line.split(": ", 1)) for line in head.decode().splitlines()]
                status = next((int(value[:3]) for name, value in headers if name == "Status"), 200)
                self.send(status, [pair for pair in headers if pair[0] != "Status"], data)

            do_GET = do_POST = serve

        class Proxy(Quiet):
            def do_CONNECT(self):
                if self.path != "github.com:443":
                    return self.send(502, [], b"")
                self.send_response(200)
                self.end_headers()
                self.close_connection = True
                try:
                    inner = outer.context.wrap_socket(self.connection, server_side=True)
                    Git(inner, self.client_address, self.server)
                    inner.shutdown(socket.SHUT_WR)
                except (ssl.SSLError, OSError):
                    pass        # the client has gone

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def environment(self):
        return {"https_proxy": "http://127.0.0.1:%d" % self.server.server_port,
                "no_proxy": "127.0.0.1,localhost", "GIT_SSL_CAINFO": self.certificate}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
