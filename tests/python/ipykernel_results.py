"""Runs cells in ipykernel: a JSON list of cells on standard input, their results on the output.

Each result is a bundle of media types as Jupyter has it. Updates are applied, as front ends do.
"""
import json
import sys

from jupyter_client.manager import KernelManager, start_new_kernel

KernelManager.transport.default_value = "ipc"   # in the current directory; a port may be taken


def results_of(client, code):
    found, ids = [], {}

    def take(message):
        content = message["content"]
        if message["msg_type"] == "update_display_data":
            found[ids[content["transient"]["display_id"]]] = content["data"]
        elif message["msg_type"] in ("display_data", "execute_result"):
            name = content.get("transient", {}).get("display_id")
            if name:
                ids[name] = len(found)
            found.append(content["data"])

    client.execute_interactive(code, timeout=120, output_hook=take, allow_stdin=False)
    return found


manager, client = start_new_kernel()
try:
    results = [results_of(client, code) for code in json.load(sys.stdin)]
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
json.dump(results, sys.stdout)
