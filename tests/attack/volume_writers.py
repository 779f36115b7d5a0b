# attack: writes a volume beside another session that is killed (-9) in the middle of it, while the
#     host exchanges files, and wants all of it
# rows: 30
# expect: CONTAIN(made|refused|allowed|whole)
# isolation: full light landlock
# volume: v
# unconfined: never

WRITER = """
import os
print("here", flush=True)
while True:
    for i in range(100):
        save_to_volume("shared", ("%d " % i) * 30000)
"""


def attack():
    here = os.environ["DROSTE_VOLUME"]
    end, saw = time.monotonic() + 5, {"": "made"}
    while time.monotonic() < end:
        save_to_volume("shared", "own " * 30000)
        text = load_from_volume("shared")
        first = text.split(" ", 1)[0]
        if text != (first + " ") * 30000 and not text.startswith("[error: file not found"):
            saw["half"] = "half a file: %.40s" % text
    return saw


def meanwhile(tool):
    import os
    import signal
    import time
    if tool("ls", "v") != "success":
        return {}       # it is not there yet
    level = "full" if os.geteuid() == 0 else "auto"
    other = tool.start(WRITER, "--isolation", level)
    time.sleep(0.1)
    saw = {"snapshot": tool("snapshot", "v", "s"), "restore": tool("restore", "v", "nothing"),
           "rm": tool("rm", "v")}
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.stdout.close()
    saw["put"] = ("allowed" if tool("put", "v", "/etc/hostname", "hostname") == "success"
                  else "broken")
    return saw


def host(tool):
    """Then nobody has it: the file is one of them, whole."""
    import time
    for _ in range(1200):
        word = tool("snapshot", "v", "s")
        if word == "success":
            break
        time.sleep(0.05)
    tool("get", "v", "shared", "-")
    text = tool.out.decode()
    first = text.split(" ", 1)[0]
    return {"snapshot": "allowed" if word == "success" else word,
            "the file": "whole" if text == (first + " ") * 30000 else "half"}


def twin():
    return ("success" if save_to_volume("mine", "x") == os.environ["DROSTE_VOLUME"] + "/mine"
            else "denied")
