#!/usr/bin/python3
"""Breaks a cluster while it works: `make chaos`, or `tests/cluster/chaos.py [RUNS] [SEED]` as root.
`--repeat N` does it N times, each with the next seed.

Three machines (network namespaces), each with a node and a server of one JetStream cluster, whose
streams have three replicas. While runs go through the queue and clients use sandboxes through
whichever node answers, faults come one after the other, chosen at random with the seed. At the end
it checks that

- each run has the right answer, from any node, and its log one end with nothing behind it;
- no prompt was asked under two keys, which a provider would charge twice;
- no sandbox has outlived its lease, nor its node, and no cell had another one's answer;
- a volume has never had less than what was committed to it, whichever node had it;
- nothing is left in the records of the nodes.

The provider is on none of the machines, so a node that is cut off from the others can still spend.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import glob
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import machines as machines_of
from jetstream import JetStream, NoLeader
from nodes import CALLS, DROSTE, NATS_SERVER, Nats, Node, Provider, get, put, wait_until

COUNT, PORT = 3, 8710
LEASE = 4            # of sandboxes, seconds
DISK = 400 << 20     # of each node
PATIENCE = 900       # for one run, seconds: the machine may be busy
FAKETIME = "".join(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")[:1])
FAKETIME_FILES = "/dev/shm/*faketime_*"    # one that was killed leaves them
SKEWS = [-86400, -300, -20, 20, 300, 86400]
PR_SET_CHILD_SUBREAPER = 36


def missing():
    """Why it cannot run here; "" if it can."""
    if not os.path.exists(NATS_SERVER):
        return "there is no nats-server"
    return machines_of.missing() or ("" if shutil.which("nft") else "there is no nft (nftables)")


class ChaosNats(Nats):
    """One of the servers, on a machine."""

    def __init__(self, place, machines, index):
        self.machines, self.index = machines, index
        self.route = ",".join("nats://%s:6222" % address for address in machines.addresses)
        super().__init__(place, machines.addresses[index])

    def start(self):
        self.port, self.url = 4222, "nats://%s:4222" % self.host
        self.process = self.machines.start(
            self.index, NATS_SERVER, "-js", "-a", self.host, "-p", "4222",
            "-n", "n%d" % self.index, "-sd", self.place, "--cluster_name", "chaos",
            "--cluster", "nats://%s:6222" % self.host, "--routes", self.route,
            "-l", self.place + ".log")


class ChaosNode(Node):
    """A node on a machine, with a small disk and a clock of its own."""

    def __init__(self, home, machines, index, provider, keys, key, share, runs):
        self.machines, self.index, self.host, self.key = (
            machines, index, machines.addresses[index], key)
        self.clock = os.path.join(home, "clock")
        self.skew(0)
        self.url = ",".join("nats://%s:4222" % a for a in
                            machines.addresses[index:] + machines.addresses[:index])
        os.makedirs(os.path.join(home, "data"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % DISK, "tmpfs",
                        os.path.join(home, "data")], check=True)
        super().__init__(home, self, provider, "--keys", keys, "--isolation", "full",
                         "--share", str(share), "--llm-call-timeout", str(PATIENCE),
                         "--runs", str(runs))

    def launch(self, command, env=None, **more):
        env = {**env, "TMPDIR": os.path.join(self.home, "data")}
        if FAKETIME:
            env.update(LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=self.clock,
                       FAKETIME_CACHE_DURATION="1", FAKETIME_DONT_FAKE_MONOTONIC="1",
                       FAKETIME_DISABLE_SHM="1")
        return self.machines.start(self.index, "/usr/bin/env", "-i",
                                   *("%s=%s" % row for row in env.items()), *command, "--listen",
                                   "%s:%d" % (self.host, PORT), "--node", "m%d" % self.index,
                                   **more)

    def skew(self, seconds):
        with open(self.clock + ".new", "w") as f:
            f.write("%+d\n" % seconds)
        os.rename(self.clock + ".new", self.clock)

    def start(self):
        """As a service manager would: until it starts. Without two NATS servers it cannot."""
        for _ in range(60):
            try:
                return super().start()
            except AssertionError:
                self.process.wait()
        raise AssertionError("a node does not start: see " + self.log.name)

    def fill(self):
        """Takes what is left of its disk."""
        try:
            with open(os.path.join(self.home, "data", "filler"), "wb", 0) as f:
                while f.write(bytes(1 << 16)):
                    pass
        except OSError:
            pass

    def empty(self):
        if os.path.exists(os.path.join(self.home, "data", "filler")):
            os.unlink(os.path.join(self.home, "data", "filler"))


class Cluster:
    def __init__(self, place, at_once):
        self.place, self.at_once, self.provider = place, at_once, None
        self.faketime_files = set(glob.glob(FAKETIME_FILES))
        self.nats, self.nodes = [], []
        self.machines = machines_of.Machines(COUNT)
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def begin(self):
        made = subprocess.run(
            [DROSTE, "keys", "create", "chaos", "--scopes", "admin", "--keys",
             str(self.place / "keys.json")],
            capture_output=True, text=True, check=True, env={"HOME": str(self.place)})
        self.key = made.stdout.split()[0]
        self.provider = Provider(0.05, self.machines.head)
        (self.place / "share").mkdir()
        for i in range(COUNT):
            self.nats.append(ChaosNats(self.place / ("nats%d" % i), self.machines, i))
        wait_until(lambda: all(machines_of.is_open(nats.host, 4222) for nats in self.nats))
        for i in range(COUNT):
            home = self.place / ("node%d" % i)
            home.mkdir()
            self.nodes.append(ChaosNode(str(home), self.machines, i, self.provider,
                                        str(self.place / "keys.json"), self.key,
                                        self.place / "share", -(-self.at_once // COUNT)))

    def check_orphans(self):
        """What a dead node has started is dead as well, soon."""
        own = {p.process.pid for p in self.nodes + self.nats}

        def orphans():
            left = []
            for pid, (parent, state) in descendants().items():
                if parent != os.getpid() or pid in own:
                    continue
                if state == "Z":
                    os.waitpid(pid, os.WNOHANG)
                else:
                    left.append(pid)
            return left
        try:
            wait_until(lambda: not orphans())
        except AssertionError:
            raise AssertionError("processes of dead nodes are left: %r" % orphans()) from None

    def rules(self, index, *rules):
        """Sets what a machine drops; without rules, nothing."""
        text = "table inet chaos {}\ndelete table inet chaos\n"
        if rules:
            text += "table inet chaos {\n%s\n}\n" % "\n".join(
                "chain %s { type filter hook %s priority 0; %s }" % (name, name, rule)
                for name, rule in rules)
        subprocess.run(["ip", "netns", "exec", self.machines.names[index], "nft", "-f", "-"],
                       input=text, text=True, check=True)

    def cut(self, index, directions):
        others = "{ %s }" % ", ".join(a for i, a in enumerate(self.machines.addresses)
                                      if i != index)
        rules = {"input": "ip saddr %s drop;" % others, "output": "ip daddr %s drop;" % others}
        self.rules(index, *((direction, rules[direction]) for direction in directions))

    def close(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()
        for nats in self.nats:
            nats.process.kill()    # a stopped one as well
            nats.process.wait()
        self.machines.close()
        for i in range(COUNT):
            subprocess.run(["umount", str(self.place / ("node%d" % i) / "data")],
                           capture_output=True)
        for path in set(glob.glob(FAKETIME_FILES)) - self.faketime_files:
            if not os.path.exists("/proc/" + path.rpartition("_")[2]):
                os.unlink(path)
        if self.provider:
            self.provider.close()


class Faults(threading.Thread):
    """One after the other; each is over before the next one."""

    def __init__(self, cluster, seed, rests, names):
        super().__init__()
        self.cluster, self.random, self.rests = cluster, random.Random(seed), rests
        self.over, self.begun = threading.Event(), threading.Event()
        self.done, self.failure = collections.Counter(), None
        self.names = [n for n in names or FAULTS if FAKETIME or n != "clock"]

    def run(self):
        try:
            while not self.over.is_set():
                round_of = self.random.sample(self.names, len(self.names))
                for name in round_of:
                    i = self.random.randrange(COUNT)
                    getattr(self, "fault_" + name)(
                        i, self.cluster.nodes[i], self.cluster.nats[i])
                    self.done[name] += 1
                    if self.over.wait(self.random.uniform(*self.rests)):
                        break
                self.begun.set()
        except BaseException as e:
            self.failure = e
            raise

    def sleep(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def fault_node_killed(self, i, node, nats):
        node.kill()
        self.cluster.check_orphans()
        node.start()

    def fault_node_stopped(self, i, node, nats):
        node.pause()
        self.sleep(3.5, 5)
        node.go_on()

    def fault_node_ended(self, i, node, nats):
        node.stop()
        node.start()

    def fault_nats_killed(self, i, node, nats):
        nats.kill()
        self.sleep(0, 2)
        nats.start()

    def fault_nats_stopped(self, i, node, nats):
        nats.process.send_signal(signal.SIGSTOP)
        self.sleep(3.5, 5)
        nats.process.send_signal(signal.SIGCONT)

    def fault_machine_lost(self, i, node, nats):
        node.kill()
        nats.kill()
        nats.start()
        node.start()

    def fault_cut_off(self, i, node, nats):
        self.cluster.cut(i, ["input", "output"])
        self.sleep(4, 6)
        self.cluster.rules(i)

    def fault_deaf(self, i, node, nats):
        self.cluster.cut(i, ["input"])
        self.sleep(4, 6)
        self.cluster.rules(i)

    def fault_mute(self, i, node, nats):
        self.cluster.cut(i, ["output"])
        self.sleep(4, 6)
        self.cluster.rules(i)

    def fault_disk_full(self, i, node, nats):
        node.fill()
        self.sleep(1, 3)
        node.empty()

    def fault_clock(self, i, node, nats):
        node.skew(self.random.choice(SKEWS))
        self.sleep(1, 3)


FAULTS = [n[len("fault_"):] for n in vars(Faults) if n.startswith("fault_")]


class Clients(threading.Thread):
    """Makes sandboxes, uses them through other nodes, and leaves them to their lease."""

    def __init__(self, cluster, seed):
        super().__init__()
        self.cluster, self.random = cluster, random.Random(seed)
        self.over, self.wrong, self.figures = threading.Event(), [], collections.Counter()

    def ask(self, method, path, body=None):
        try:
            return self.random.choice(self.cluster.nodes).ask(method, path, body, 8)
        except (OSError, http.client.HTTPException):
            return 0, None

    def run(self):
        number = 0
        while not self.over.wait(0.1):
            number += 1
            status, made = self.ask("POST", "/v1/sandboxes", {"life_seconds": LEASE})
            self.figures["sandboxes" if status == 201 else "sandboxes refused"] += 1
            if status != 201:
                continue
            for i in range(3):
                n = number * 10 + i
                status, cell = self.ask("POST", "/v1/sandboxes/%s/execute" % made["id"],
                                        {"code": "print(%d)" % n})
                self.figures["cells" if status == 200 else "cells refused"] += 1
                if status == 200 and cell["stdout"] != "%d\n" % n:
                    self.wrong.append((n, cell))


class Writer(threading.Thread):
    """Writes numbers into a volume and commits them, through whichever node answers. With two
    writers, a number that was committed would be missing later."""

    FILE = "/v1/volumes/numbers/files?path=number"
    SNAPSHOTS = "/v1/volumes/numbers/snapshots"

    def __init__(self, cluster, seed):
        super().__init__()
        self.cluster, self.random = cluster, random.Random(seed + 1)
        self.over, self.wrong, self.committed = threading.Event(), [], 0
        self.unanswered = set()     # numbers of requests that may still arrive
        self.late = 0               # of them, those that did

    def ask(self, method, path, body=None):
        try:
            return self.random.choice(self.cluster.nodes).ask(method, path, body, 8)
        except (OSError, http.client.HTTPException):
            return 0, None

    def read(self):
        status, number = self.ask("GET", self.FILE)
        if status == 200 and number < self.committed:
            if number in self.unanswered:
                self.late += 1
            else:
                self.wrong.append((number, self.committed))
        return status == 200

    def run(self):
        number = 0
        while not self.over.is_set() and self.ask("POST", "/v1/volumes", {"name": "numbers"})[
                0] not in (201, 409):
            time.sleep(0.1)
        while not self.over.wait(0.2):
            number += 1
            if not self.committed or self.read():
                self.commit(number)

    def commit(self, number):
        status = self.ask("PUT", self.FILE, number)[0]
        if status not in (204, 400, 404, 503):
            self.unanswered.add(number)
        done = status == 204 and self.ask(
            "POST", self.SNAPSHOTS, {"snapshot": "n%d" % number})[0] == 200
        if done:
            self.committed = number
        # A volume has at most 16, and what a fault has kept from being removed is one of them.
        for one in (self.ask("GET", self.SNAPSHOTS)[1] or {}).get("snapshots", []):
            self.ask("DELETE", self.SNAPSHOTS + "?snapshot=" + one["name"])
        return done

    def check(self):
        """What was committed is there, and the volume takes a commit again."""
        wait_until(self.read)
        wait_until(lambda: self.commit(self.committed + 1))
        wait_until(self.read)
        assert not self.wrong, self.wrong


def descendants():
    """The processes below this one, with their parents' ids. Orphans become its children."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                text = f.read()
        except OSError:
            continue
        words = text.rpartition(")")[2].split()
        parents[int(text.split()[0])] = (int(words[1]), words[0])
    found, before = {os.getpid(): None}, 0
    while len(found) != before:
        before = len(found)
        for pid, (parent, state) in parents.items():
            if parent in found and pid not in found:
                found[pid] = (parent, state)
    del found[os.getpid()]
    return found


def read_logs(cluster):
    """How many ends each run's log has, and what is behind one. None while no leader answers, as
    after the last fault."""
    ends, behind = collections.Counter(), []   # marks: serve/queue/queue.h
    try:
        with contextlib.closing(JetStream(4222, cluster.machines.addresses[0])) as stream:
            for subject, data in stream.all_messages("droste_run_logs"):
                name, mark = subject.rpartition(".")[2], data[:1]
                if ends[name]:
                    behind.append((name, mark))
                ends[name] += mark in b"ED" and data[25:26] == b"."
    except (OSError, NoLeader):
        return None
    return +ends, behind


def check_logs(cluster, names):
    """Each run's log has one end, with nothing behind it. A leader that has just been elected may
    still be reading what it has."""
    deadline = time.monotonic() + 60
    while True:
        found = read_logs(cluster)
        missing = [name for name in names if not found or not found[0][name]]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert found, "no server answers for the logs"
    ends, behind = found
    assert not behind, behind
    assert ends == collections.Counter(names), (missing, [n for n in ends if ends[n] != 1])


def chaos(place, runs, seed, rests=(0.3, 1.5), faults=None, at_once=48):
    """Checks everything, and returns figures. `faults`: only these."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    cluster = Cluster(place, at_once)
    try:
        return disturb(cluster, runs, Faults(cluster, seed, rests, faults), seed)
    finally:
        cluster.close()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def disturb(cluster, runs, faults, seed):
    clients, writer = Clients(cluster, seed), Writer(cluster, seed)
    nodes, provider = cluster.nodes, cluster.provider
    names = ["run-%d" % i for i in range(runs)]
    random.Random(seed).shuffle(names)
    begun = time.monotonic()

    def one(name):
        if faults.failure:
            raise RuntimeError("a fault failed")
        put(nodes, name, 2000)
        return get(nodes, name, PATIENCE)

    clients.start()
    writer.start()
    try:
        # There is something to lose.
        wait_until(lambda: writer.committed and clients.figures["cells"])
        faults.start()
        with concurrent.futures.ThreadPoolExecutor(cluster.at_once) as pool:
            answers = list(pool.map(one, names))
        faults.begun.wait()     # one of each, however few the runs
        seconds = time.monotonic() - begun
    finally:
        faults.over.set()
        clients.over.set()
        writer.over.set()
        if faults.ident:
            faults.join()
        clients.join()
        writer.join()
    assert not faults.failure, faults.failure
    for name, answer in zip(names, answers):
        want = ["%s PART %d" % (name.upper(), i) for i in range(CALLS)]
        assert answer["state"] == "ended" and answer["run"]["answer"] == want, answer
        assert get(nodes, name) == answer    # still the same, whichever node says it
    assert not provider.paid_twice(), provider.paid_twice()
    assert not clients.wrong, clients.wrong
    writer.check()
    check_logs(cluster, names)
    check_nothing_left(cluster)
    return {"runs": runs, "seed": seed, "seconds": round(seconds, 1), "faults": dict(faults.done),
            "calls": len(provider.requests), "repeated under their key": provider.repeated(),
            "committed": writer.committed, "written late": writer.late, **clients.figures}


def check_nothing_left(cluster):
    for node in cluster.nodes:
        wait_until(lambda node=node: node.ask("GET", "/v1/sandboxes")[1]["sandboxes"] == [],
                   LEASE + 30)
        wait_until(lambda node=node: node.ask("GET", "/v1/runs?status=running")[1]["runs"] == [])
    for node in cluster.nodes:
        node.stop()
    cluster.check_orphans()


if __name__ == "__main__":
    reason = missing()
    if reason:
        sys.exit("the cluster cannot be broken here: " + reason)
    for number in (signal.SIGINT, signal.SIGTERM):    # both end it in order
        signal.signal(number, lambda *_: sys.exit("interrupted"))
    if not FAKETIME:
        print("the clocks are not skewed: libfaketime is not installed", file=sys.stderr)
    options = argparse.ArgumentParser(description="Breaks a cluster while it works.")
    options.add_argument("runs", type=int, nargs="?", default=10000)
    options.add_argument("seed", type=int, nargs="?", default=random.randrange(10**6))
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--at-once", type=int, default=48, help="runs under way (48)")
    asked = options.parse_args()
    for given in range(asked.seed, asked.seed + asked.repeat):
        directory = tempfile.mkdtemp()
        try:
            print(json.dumps(chaos(pathlib.Path(directory), asked.runs, given,
                                   at_once=asked.at_once)), flush=True)
        except BaseException:
            print("seed %d; the logs are in %s" % (given, directory), file=sys.stderr)
            raise
        shutil.rmtree(directory)
