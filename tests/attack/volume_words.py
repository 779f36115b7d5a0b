# attack: names volumes, snapshots and paths so that they lead elsewhere, run something or are not
#     what they look like
# rows: 98
# expect: DENY(refused|allowed|none|error)
# isolation: full light landlock
# alike: what is tried is what the host does with the volume
# volume: v
# unconfined: never


def attack():
    """In the guest: paths of its functions."""
    wrong = ["", "../x", "/etc/passwd", "a/../../x", "x\0y", ".", "/data/../etc/passwd", "x" * 5000]
    saw = {}
    for path in wrong:
        try:
            text = save_to_volume(path, "x")
        except OSError:
            text = "[error: too long]"
        saw["save %.20r" % path] = "error" if text.startswith("[error: ") else text
        saw["workspace %.20r" % path] = "error" if path == "x" * 5000 or workspace_write(
            path, "x").startswith("[error: ") else "written"
    return saw


def host(tool):
    import os
    wrong = ["../x", "a/b", ".hidden", "-x", "%n", ";rm -rf .", "$(id)", "v\u0430", "x" * 10000,
             "a b", "v\n", "..", "."]
    before, saw = sorted(os.listdir(tool.root)), {}
    for name in wrong:
        saw["exec %.12r" % name] = tool("-c", "1", "--volume-name=" + name, command="exec")
        saw["create %.12r" % name] = tool("create", "--", name)
        saw["snapshot %.12r" % name] = tool("snapshot", "--", "v", name)
        saw["rm %.12r" % name] = tool("rm", "--", name)
    saw["no name"] = tool("create", "")
    saw["made"] = "none" if sorted(os.listdir(tool.root)) == before else str(os.listdir(tool.root))
    saw["a name"] = ("allowed" if tool("create", "A-1_b.c") == "success"
                     and tool("rm", "A-1_b.c") == "success" else "broken")
    return saw


def twin():
    return "success" if save_to_volume("a/b c.txt", "x").endswith("/a/b c.txt") else "denied"
