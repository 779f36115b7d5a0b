#!/usr/bin/python3
"""A model program (`exec:PROGRAM`) that behaves as each request's last message says.

One request a line of JSON, one answer a line. The first word of the last message decides: `echo`
answers "N:TEXT" with the number of requests so far and the text; `hold` answers when `release`
comes, last first; the others misbehave.
"""
import json
import os
import signal
import sys
import time


def answer(request, text, **more):
    print(json.dumps({"id": request["id"], "text": text, **more}), flush=True)


held, count = [], 0
for line in sys.stdin:
    request = json.loads(line)
    count += 1
    content = request["messages"][-1]["content"]
    content = content if isinstance(content, str) else json.dumps(content)
    word = content.partition(" ")[0]
    if word == "echo":
        answer(request, "%d:%s" % (count, content))
    elif word == "fields":
        answer(request, json.dumps({k: v for k, v in request.items() if k != "messages"},
                                   sort_keys=True))
    elif word == "long":
        answer(request, "%d" % len(content))
    elif word == "usage":
        answer(request, "x", usage={"input_tokens": 7, "output_tokens": 8}, finish="length")
    elif word == "error":
        print(json.dumps({"id": request["id"], "error": "I will not.\nNever."}), flush=True)
    elif word == "rate":
        print(json.dumps({"id": request["id"],
                          "error": {"code": "model_rate", "message": "slow down"}}), flush=True)
    elif word == "hold":
        held.append(request)
    elif word == "release":
        for one in reversed(held):
            answer(one, one["messages"][-1]["content"])
        answer(request, "released")
        held = []
    elif word == "exit":
        print("Traceback of mine\nValueError: something broke", file=sys.stderr, flush=True)
        os._exit(3)
    elif word == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "last":  # the answer and the end at once
        answer(request, "my last words")
        os._exit(0)
    elif word == "garbage":
        print("Loading model… done", flush=True)
    elif word == "foreign":
        print('{"id": 999, "text": "x"}', flush=True)
    elif word == "neither":
        print(json.dumps({"id": request["id"]}), flush=True)
    elif word == "huge":
        piece = "x" * (1 << 20)
        while True:
            sys.stdout.write(piece)
    elif word == "deaf":  # closes its output and goes on living, with a child
        if os.fork() == 0:
            os.close(1)
            os.close(2)
            time.sleep(1000)
        with open(content.split()[1], "w") as f:
            f.write("%d" % os.getpid())
        os.close(1)
        time.sleep(1000)
