"""Run by the package ray's Python: two machines of a Ray cluster, a node on each."""
import json
import os
import time

import droste.integrations.ray as nodes
import ray
from ray.cluster_utils import Cluster

OPTIONS = ["--keys", os.path.join(os.environ["DROSTE_HOME"], "keys.json"), "--isolation", "process"]


def running():
    states = ray.get([node.state.remote() for node in nodes.nodes()])
    return sum(state["status"] is None for state in states)


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")

    def up():
        nodes.up(os.environ["NATS"], port=0, program=os.environ["DROSTE"], options=OPTIONS)
        time.sleep(1)
        return running()
    report = {"began": up(), "again": up()}
    cluster.remove_node(second)
    until(lambda: len(nodes.nodes()) == 1)
    report["lost"] = running()
    cluster.add_node(num_cpus=1)
    report["after"] = up()
    report["ended"] = nodes.down()
    report["left"] = len(nodes.nodes())
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(report))


main()
