# attack: cuts files of its volume off and makes them longer while the host reads them
# rows: 26
# expect: DENY(made|allowed|failed)
# isolation: full light landlock
# alike: what is tried is what the host does with the volume
# volume: v
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    write(here + "/f", b"x" * (8 << 20))
    end = time.monotonic() + 5
    while time.monotonic() < end:
        os.truncate(here + "/f", 0)
        os.truncate(here + "/f", 512 << 20)
        write(here + "/f", b"x" * (1 << 20))
    return "made"


def meanwhile(tool):
    """The file may be shorter than before, or gone; no reader dies of it (SIGBUS) or blocks."""
    saw = {}
    for words in (("get", "v", "f"), ("get", "v", ".", "all"), ("du", "v")):
        word = tool(*words)
        saw[words[0]] = "allowed" if word in ("success", "refused") else word
    tool.leaks()
    return saw


def host(tool):
    return "allowed" if tool("get", "v", "f") == "success" else "broken"


def twin():
    return seen(os.truncate, os.environ["DROSTE_VOLUME"] + "/f", 10)
