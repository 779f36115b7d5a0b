"""Machines on one: network namespaces on a bridge, each with an address and a host name.

They share the file system and the processes' ids, and nothing else of the network: what a program
of one machine says to another goes over the bridge.
"""
import os
import shutil
import signal
import socket
import subprocess
import time

NET = "10.213.%d." % (os.getpid() % 250 + 1)


def missing():
    """Why there can be no machines here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "there is no ip (iproute2)"
    name = "droste-probe-%d" % os.getpid()     # pytest's workers ask at the same time
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if probe.returncode != 0:
        return "ip netns add: " + probe.stderr.strip()
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    """`count` machines; this one, the head, has the address `head` on their bridge."""

    def __init__(self, count):
        self.tag = "dr%d" % (os.getpid() % 100000)
        self.head, self.names, self.links, self.processes = NET + "1", [], [], []
        self.addresses = [NET + str(11 + i) for i in range(count)]
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        ip("link", "add", self.tag, "type", "bridge")
        ip("addr", "add", self.head + "/24", "dev", self.tag)
        ip("link", "set", self.tag, "up")
        for i, address in enumerate(self.addresses):
            name, link = "%s-%d" % (self.tag, i), "%sv%d" % (self.tag, i)
            ip("netns", "add", name)
            self.names.append(name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.links.append(link)
            ip("link", "set", link, "master", self.tag, "up")
            ip("-n", name, "addr", "add", address + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")

    def start(self, index, *command, **more):
        """Starts a program on a machine, whose host name is its address."""
        process = subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec nsenter "$@"',
             self.addresses[index], "--net=/run/netns/" + self.names[index], *command], **more)
        self.processes.append(process)
        return process

    def pids(self, index):
        listing = subprocess.run(["ip", "netns", "pids", self.names[index]], capture_output=True,
                                 text=True).stdout
        return [int(word) for word in listing.split()]

    def crash(self, index):
        """Everything of a machine dies at once."""
        for pid in self.pids(index):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def close(self):
        for index in range(len(self.names)):
            deadline = time.monotonic() + 10
            while self.pids(index) and time.monotonic() < deadline:
                self.crash(index)
                time.sleep(0.05)
        for process in self.processes:
            process.wait(60)
        for link in self.links:     # a namespace ends some time after its name, with its links
            subprocess.run(["ip", "link", "del", link], capture_output=True)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.tag], capture_output=True)


def is_open(address, port):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex((address, port)) == 0
