#!/usr/bin/env python3
"""An environment of one's own as a program, in any language: Droste speaks with it over its
standard streams (docs/environments.md has the protocol). This one runs the words that it is given
on this machine; yours may start them wherever it can reach their streams.

    droste exec --env bridge:examples/bridge.py -c 'print(1 + 1)'
"""
import contextlib, json, os, signal, subprocess, sys, threading

saying = threading.Lock()
def say(message, data=b""):
    with saying:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n" + data)
        sys.stdout.buffer.flush()

class Opened:               # one Python, and the thread that hears it
    def __init__(self, number, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        start_new_session=True)
        self.number, self.may_go = number, threading.Event()
        self.may_go.set()
        say({"joined": number})
        threading.Thread(target=self.hear, daemon=True).start()
    def hear(self):
        while self.may_go.wait():
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return say({"ended": self.number})
            say({"read": self.number, "bytes": len(data)}, data)
    def write(self, data):
        with contextlib.suppress(BrokenPipeError):      # its end is told by who hears it
            self.process.stdin.write(data)
            self.process.stdin.flush()
    def end(self):
        # The end of its input lets the supervisor end all that it has started.
        self.may_go.set()
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

opened = {}
signal.signal(signal.SIGINT, signal.SIG_IGN)    # the terminal's interrupt is for Droste
# {"image": "any", "network": true, …}: settings that it can do something with
say({"bridge": 1, "features": {}})
for line in sys.stdin.buffer:
    message = json.loads(line)
    verb, number = next(iter(message.items()))
    data = sys.stdin.buffer.read(message["bytes"]) if "bytes" in message else b""
    if verb == "open":
        try:
            opened[number] = Opened(number, message["words"])
        except OSError as error:
            say({"ended": number, "why": str(error), "kind": "environment"})
    elif number not in opened: pass     # it could not be started
    elif verb == "write":
        opened[number].write(data)
    elif verb == "close":
        opened.pop(number).end()
    elif verb in ("pause", "resume"):
        opened[number].may_go.clear() if verb == "pause" else opened[number].may_go.set()
for one in opened.values(): one.end()
