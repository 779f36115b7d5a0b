# attack: puts links to the host's files into its volume, for the host to follow when it reads,
#     writes, lists or removes there
# rows: 4
# expect: DENY(made|refused|allowed|left out)
# isolation: full light landlock
# alike: what is tried is what the host does with the volume
# volume: v
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    home = os.path.dirname(HOST["secret"])
    for name, to in (("link", HOST["secret"]), ("home", home), ("up", "../../../home/secret"),
                     ("root", "/"),
                     ("self", "/proc/self/root" + HOST["secret"])):
        os.symlink(to, here + "/" + name)
    os.mkdir(here + "/d")
    os.symlink(HOST["secret"], here + "/d/link")
    os.symlink(home, here + "/d/home")
    write(here + "/d/file", b"mine")
    return "made"


def host(tool):
    saw = {}
    for path in ("link", "up", "self", "home/secret", "root/etc/passwd", "d/link", "d/home/secret",
                 "../limits", "d/../../limits"):
        saw["get " + path] = tool("get", "v", path, "-")
        saw["get to a file " + path] = tool("get", "v", path, "got")
    for path in ("link", "home/new", "d/link", "root/tmp/new"):
        saw["put " + path] = tool("put", "v", "/etc/hostname", path)
    for path in ("home/secret", "d/home/secret"):
        saw["rm " + path] = tool("rm", "v", path)
    saw["ls home"] = ("left out" if tool("ls", "v", "home/") in ("success", "refused")
                      and b"secret" not in tool.out else "listed")
    saw["tree"] = ("left out" if tool("tree", "v", "--json") == "success"
                   and b"home/secret" not in tool.out else "listed")
    for words in (("get", "v", "d", "got"), ("get", "v", "d/file", "file"), ("snapshot", "v", "s"),
                  ("restore", "v", "s"), ("rm", "v", "d"), ("rm", "v")):
        saw[" ".join(words)] = "allowed" if tool(*words) == "success" else "broken"
    return saw


def twin():
    """What it wrote itself is there for the host, and for it."""
    return seen(read, os.environ["DROSTE_VOLUME"] + "/d/file")
