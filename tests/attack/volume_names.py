# attack: gives files of its volume names with newlines, escapes, bytes that are no text, 255 bytes,
#     a '-' in front
# rows: 20
# expect: INERT(made|refused|harmless|the same)
# isolation: full light landlock
# volume: v
# unconfined: never

NAMES = [b"new\nline", b"\x1b[2Jgone", b"\xff\xfe", b"-rf", b"x" * 255, b" ", b"a\\b",
         "\u202egnp.exe".encode(), b"%n%s", b"--json"]


def attack():
    here = os.environ["DROSTE_VOLUME"].encode()
    os.mkdir(here + b"/odd")
    for name in NAMES:
        write(here + b"/odd/" + name, name)
    return {"zero": "refused" if seen(write, here + b"/odd/a\0b") == "ValueError" else "made it",
            "others": "made"}


def host(tool):
    import json
    import os
    saw = {"ls": tool("ls", "v", "odd")}
    shown = tool.out
    saw["ls"] = "harmless" if saw[
        "ls"] == "success" and b"\x1b" not in shown and b"\xe2\x80\xae" not in shown and \
        len(shown.splitlines()) == len(NAMES) else "raw"
    tool("tree", "v", "odd")
    saw["tree"] = "harmless" if b"\x1b" not in tool.out else "raw"
    tool("ls", "v", "odd", "--json")
    entries = json.loads(tool.out)["entries"]
    found = {bytes.fromhex(e["path_hex"]) if "path_hex" in e else e["path"].encode()
             for e in entries}
    saw["json"] = "the same" if found == set(NAMES) else "others"
    for name in NAMES:
        got = tool("get", "v", "odd/" + os.fsdecode(name), "-") == "success"
        saw["get %r" % name[:10]] = "the same" if got and tool.out == name else "other"
    saw["get all"] = "the same" if tool("get", "v", "odd", "got") == "success" and \
        set(os.listdir(os.fsencode(tool.to) + b"/got")) == set(NAMES) else "other"
    for name in NAMES:
        saw["rm %r" % name[:10]] = "the same" if tool("rm", "v", "odd/"
                                                      + os.fsdecode(name)) == "success" else "other"
    return saw


def twin():
    write(os.environ["DROSTE_VOLUME"] + "/plain")
    return seen(os.listdir, os.environ["DROSTE_VOLUME"])
