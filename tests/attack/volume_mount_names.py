# attack: puts links into its volume, named as what is mounted, made or written there in the next
#     session (CVE-2025-31133)
# rows: 29
# expect: DENY(made|refused|allowed|left out)
# isolation: full light landlock
# volume: v
# unconfined: never


def attack():
    import shutil
    here = os.environ["DROSTE_VOLUME"]
    home = os.path.dirname(HOST["secret"])
    for name in ("memory", "knowledge", "workspace", "artifacts", "data", "home", "dev", "tmp",
                 "proc", "aside", "snapshots", "lock", "limits"):
        if os.path.isdir(here + "/" + name):
            shutil.rmtree(here + "/" + name)
        os.symlink(home, here + "/" + name)
    os.symlink("/dev/null", here + "/null")
    return "made"


def host(tool):
    """The next session, and everything outside, works as if nothing were there."""
    code = (
        "import os; print([save_to_volume('memory/new', 'x')[:7], workspace_write('new', 'x')[:7], "
        "load_from_volume('workspace/secret')[:7],"
        " save_to_volume('fine', 'x')[-4:], os.path.islink(os.environ['DROSTE_VOLUME'])])")
    saw = {}
    for level in ("full", "light"):
        word = tool("-c", code, "--volume-name", "v", "--isolation", level, command="exec")
        saw["session at "
            + level] = "allowed" if word == "not started" or tool.out.decode().strip() == \
            "['[error:', '[error:', '[error:', 'fine', False]" else tool.out.decode() or word
    saw["put there"] = tool("put", "v", "/etc/hostname", "artifacts/new")
    saw["get there"] = tool("get", "v", "workspace/secret", "-")
    for words in (("snapshot", "v", "s"), ("restore", "v", "s"), ("limit", "v"), ("du", "v"),
                  ("get", "v", ".", "all")):
        saw[words[0]] = "allowed" if tool(*words) == "success" else "broken"
    return saw


def twin():
    write(os.environ["DROSTE_VOLUME"] + "/own")
    return seen(read, os.environ["DROSTE_VOLUME"] + "/own")
