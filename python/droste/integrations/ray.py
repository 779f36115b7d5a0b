"""Nodes of a cluster on Ray: an actor for each machine, which runs `droste serve --join`.

    python3 -m droste.integrations.ray up --join nats://10.0.0.1:4222 -- --keys keys.json
    python3 -m droste.integrations.ray status
    python3 -m droste.integrations.ray down

In a program that uses Ray:

    nodes = droste.integrations.ray.up("nats://10.0.0.1:4222", options=["--keys", "keys.json"])
    answer = ray.get(nodes[0].run.remote("What failed?", "…"))

An actor is detached: it outlives the program that made it. Ray starts one again that has died, up
to `RESTARTS` times, and with it the node under its name. Needs the package ray.
"""
import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys

from ._imports import refuse_import

try:
    import ray
except ImportError as error:
    refuse_import("Ray", "ray", error)

RESTARTS = 10
NAMESPACE = "droste"


def _free_port():
    """A port outside of those that the system gives to clients, and Ray to its workers: they could
    take it before the node does."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.randrange(20000, max(first, 30000))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


class _Node:
    """A node of the cluster on the machine of its actor."""

    def __init__(self, name, join, port, program, options):
        self.name, port = name, port or _free_port()
        address = f"{ray.util.get_node_ip_address()}:{port}"
        self.url = f"http://{address}"
        command = [program, "serve", "--join", join, "--node", name, "--listen", f"0.0.0.0:{port}",
                   "--advertise", address, *options]
        if shutil.which("setpriv"):     # an actor that is lost takes its node with it
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def state(self):
        """{"name", "url", "machine", "status"}; status is None while it runs, then a number."""
        return {"name": self.name, "url": self.url, "machine": socket.gethostname(),
                "status": self.process.poll()}

    def stop(self, seconds):
        """Drains the node; after `seconds` it is killed. Returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def run(self, question, context=None, **settings):
        """A run on the node, as `droste.RLM(server=...).run`; in Ray, its result is an object."""
        import droste

        return droste.RLM(server=self.url, **settings).run(question, context)


def _machines():
    """The ids of Ray's nodes that live, in a fixed order."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


def _name(cluster, machine):
    return f"droste-{cluster}-{machine[:12]}"


def nodes(cluster="cluster"):
    """The actors of a cluster's nodes that live, one for each machine at most."""
    found = []
    for machine in _machines():
        try:
            found.append(ray.get_actor(_name(cluster, machine), namespace=NAMESPACE))
        except ValueError:      # there is none of this name
            continue
    return found


def up(join, cluster="cluster", port=8710, program=None, options=()):
    """Starts a node on each machine of Ray that has none, and returns the actors of all.

    join: the addresses of NATS. port: where each node listens; 0: any free one. program: the droste
    of the machines; by default the one in their PATH. options: of `droste serve`, for all nodes; on
    addresses of the network it needs `--keys`. A node that is there keeps its options. Raises
    `ray.exceptions.RayError` where an actor cannot be started.
    """
    made = []
    there = {ray.get(node.state.remote())["name"] for node in nodes(cluster)}
    for machine in _machines():
        name = _name(cluster, machine)
        if name in there:
            continue
        place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(machine, soft=False)
        actor = ray.remote(_Node).options(
            name=name, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_restarts=RESTARTS,
            max_concurrency=100, scheduling_strategy=place)
        made.append(actor.remote(name, join, port, program or shutil.which("droste") or "droste",
                                 list(options)))
    for state in [actor.state.remote() for actor in made]:
        ray.get(state)
    return nodes(cluster)


def down(cluster="cluster", seconds=45):
    """Drains the nodes, each for at most so many seconds, and ends their actors. Returns how many
    there were."""
    ended = nodes(cluster)
    ray.get([node.stop.remote(seconds) for node in ended])
    for node in ended:
        ray.kill(node)
    return len(ended)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m droste.integrations.ray",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["up", "down", "status"])
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS", "auto"),
                        help="of the Ray cluster [auto]")
    parser.add_argument("--join", help="addresses of NATS")
    parser.add_argument("--cluster", default="cluster", help="the cluster's name [cluster]")
    parser.add_argument("--port", type=int, default=8710, help="where nodes listen [8710]")
    parser.add_argument("--program", help="the droste of the machines [that in their PATH]")
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="options of droste serve")
    given = parser.parse_args(arguments)
    if given.command == "up" and not given.join:
        parser.error("up needs --join nats://HOST:PORT")
    ray.init(address=given.address, namespace=NAMESPACE, log_to_driver=False,
             logging_level="warning")
    if given.command == "down":
        print(f"{down(given.cluster)} nodes ended")
        return 0
    if given.command == "up":
        up(given.join, given.cluster, given.port, given.program, given.options)
    states = ray.get([node.state.remote() for node in nodes(given.cluster)])
    for state in states:
        ended = "runs" if state["status"] is None else f"ended with {state['status']}"
        print(f"{state['name']}  {state['url']}  {state['machine']}  {ended}")
    return 0 if states and all(state["status"] is None for state in states) else 1


if __name__ == "__main__":
    sys.exit(main())
