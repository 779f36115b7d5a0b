"""What test_roots.py runs in a root: `droste serve` answers a client of the standard library."""
import json
import signal
import subprocess
import urllib.request

server = subprocess.Popen(["droste", "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                          text=True)
address = server.stdout.readline().strip() + "/v1/sandboxes"
plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url, body):
    return json.load(plain.open(urllib.request.Request(url, json.dumps(body).encode())))


sandbox = post(address, {})["id"]
print(post("%s/%s/execute" % (address, sandbox), {"code": "6 * 7"})["echo"])
server.send_signal(signal.SIGTERM)
assert server.wait() == 0
