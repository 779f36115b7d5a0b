# attack: names FIFOs and sockets like the outputs that the host expects, so that it waits for ever
# rows: 18
# expect: DENY(made|refused|allowed)
# isolation: full light landlock
# volume: v
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    os.mkdir(here + "/artifacts")
    os.mkfifo(here + "/artifacts/report.json")
    os.mkfifo(here + "/fifo", 0o666)
    os.mknod(here + "/socket", 0o140666)
    return "made"


def host(tool):
    saw = {path: tool("get", "v", path, "-")
           for path in ("artifacts/report.json", "fifo", "socket")}
    saw["put"] = tool("put", "v", "/etc/hostname", "fifo")
    for words in (("get", "v", "artifacts", "got"), ("tree", "v"), ("du", "v"),
                  ("snapshot", "v", "s"), ("restore", "v", "s"), ("rm", "v")):
        saw[" ".join(words)] = "allowed" if tool(*words) == "success" else "broken"
    return saw


def twin():
    os.makedirs(os.environ["DROSTE_VOLUME"] + "/artifacts", exist_ok=True)
    write(os.environ["DROSTE_VOLUME"] + "/artifacts/other.json", b"{}")
    return seen(read, os.environ["DROSTE_VOLUME"] + "/artifacts/other.json")
