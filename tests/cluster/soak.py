#!/usr/bin/python3
"""Queues runs in a cluster of three nodes and breaks it: `tests/cluster/soak.py RUNS [SEED]`.

Nodes are killed and started again, stopped for longer than their lease, and the NATS server is
killed and started. At the end each run must have exactly one result, the right one; no prompt may
have been asked under two keys, which a provider would charge twice; and nothing may be left.
"""
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

from nodes import CALLS, Nats, Node, Provider, get, put, wait_until

NODES = 3


class Disorder(threading.Thread):
    """Breaks something every now and then, until it is told to end."""

    def __init__(self, nodes, nats, seed):
        super().__init__()
        self.nodes, self.nats, self.random = nodes, nats, random.Random(seed)
        self.over = threading.Event()
        self.done = {"killed": 0, "stopped": 0, "nats": 0}

    def run(self):
        while True:      # once at least, however soon the runs have ended
            node, what = self.random.choice(self.nodes), self.random.random()
            if what < 0.5:
                node.kill()
                node.start()
                self.done["killed"] += 1
            elif what < 0.85:
                node.pause()
                time.sleep(self.random.uniform(3.5, 5))
                node.go_on()
                self.done["stopped"] += 1
            else:
                self.nats.kill()
                time.sleep(self.random.uniform(0, 1.5))
                self.nats.start()
                self.done["nats"] += 1
            if self.over.wait(self.random.uniform(0.5, 2)):
                break


def soak(place, runs, seed):
    nats, provider = Nats(place / "nats"), Provider(0.05)
    nodes = []
    for i in range(NODES):
        (place / ("node%d" % i)).mkdir()
        nodes.append(Node(place / ("node%d" % i), nats, provider))
    disorder = Disorder(nodes, nats, seed)
    disorder.start()
    names = ["run-%d" % i for i in range(runs)]

    def one(name):
        put(nodes, name)
        return get(nodes, name, 600)

    begun = time.monotonic()
    try:
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(one, names))
        disorder.over.set()
        disorder.join()
        for name, answer in zip(names, answers):
            want = ["%s PART %d" % (name.upper(), i) for i in range(CALLS)]
            assert answer["state"] == "ended" and answer["run"]["answer"] == want, answer
            assert get(nodes, name) == answer    # still the same
        assert not provider.paid_twice(), provider.paid_twice()
        for node in nodes:
            wait_until(lambda node=node: node.ask("GET", "/v1/runs?status=running")[1][
                "runs"] == [])
        return {"runs": runs, "seed": seed, "seconds": round(time.monotonic() - begun, 1),
                **disorder.done, "calls": len(provider.requests), "repeated": provider.repeated()}
    finally:
        disorder.over.set()
        disorder.join()
        for node in nodes:
            node.kill()
        nats.kill()
        provider.close()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(soak(pathlib.Path(directory), count, seed)))
