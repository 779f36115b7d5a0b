# attack: exchanges a directory of its volume for a link to the host's, again and again, while the
#     host walks, reads, copies and writes there
# rows: 5
# expect: DENY(made|refused|failed|allowed)
# isolation: full light landlock
# alike: what is tried is what the host does with the volume
# volume: v
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    os.makedirs(here + "/d", exist_ok=True)     # the host may have put something there already
    write(here + "/d/secret", b"not that one")
    os.symlink(os.path.dirname(HOST["secret"]), here + "/l")
    end, tries = time.monotonic() + 6, 0
    old, new = (here + "/d").encode(), (here + "/l").encode()
    while time.monotonic() < end or tries < 20000:
        libc.syscall(316, -100, old, -100, new, 2)    # renameat2, to exchange them
        tries += 1
    return "made"


def meanwhile(tool):
    """Any of these may fail, or do what they do to the directory; none touches the other."""
    saw = {}
    for words in (("get", "v", "d/secret", "-"), ("get", "v", "d", "got%d" % time_ns()),
                  ("put", "v", "/etc/hostname", "d/new"),
                  ("tree", "v"), ("du", "v"), ("rm", "v", "d/new")):
        word = tool(*words)
        saw[words[0]] = "allowed" if word == "success" else word
    return saw


def time_ns():
    import time
    return time.monotonic_ns()


def host(tool):
    return {"du": "allowed" if tool("du", "v") == "success" else "broken",
            "rm": "allowed" if tool("rm", "v") == "success" else "broken"}


def twin():
    """It may rename what it likes in there."""
    here = os.environ["DROSTE_VOLUME"]
    write(here + "/a")
    return seen(os.rename, here + "/a", here + "/b")
