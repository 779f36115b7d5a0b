# attack: replaces the root of its volume by a link; then a program outside does (CVE-2024-42472)
# rows: 6
# expect: DENY(EBUSY|EROFS|EACCES|EPERM|EXDEV|ENOTEMPTY|EEXIST|refused|allowed)
# isolation: full light landlock
# volume: v
# settings: --layout daytona
# unconfined: never


def attack():
    here = os.environ["DROSTE_VOLUME"]
    saw = {"rename": seen(os.rename, here, here + "-other"),
           "rename up": seen(os.rename, here, os.path.dirname(here) + "/other"),
           "rmdir": seen(os.rmdir, here), "symlink":
           seen(os.symlink, os.path.dirname(HOST["secret"]), here),
           "into itself": raw("mount", (TMP).encode(), here.encode(), None, 0x1000, None)}
    if here == "/data":         # the same, bound at a second place
        saw["memory"] = seen(os.rename, "/home/daytona/memory", "/home/daytona/other")
    return saw


def host(tool):
    import os
    place = os.path.join(tool.root, "v")
    os.rename(place, place + "-kept")
    os.symlink(os.path.join(os.path.dirname(tool.root), "home"), place)
    saw = {"exec": tool("-c", "1", "--volume-name", "v", command="exec"), "ls": tool("ls", "v"),
           "get": tool("get", "v", "secret", "-"),
           "put": tool("put", "v", "/etc/hostname", "x"), "rm": tool("rm", "v"),
           "snapshot": tool("snapshot", "v", "s")}
    os.unlink(place)
    os.rename(place + "-kept", place)
    os.rename(place + "/data", place + "/kept")
    os.symlink(os.path.join(os.path.dirname(tool.root), "home"), place + "/data")
    saw.update({"exec of data": tool("-c", "1", "--volume-name", "v", command="exec"),
                "ls of data": tool("ls", "v")})
    os.unlink(place + "/data")
    os.rename(place + "/kept", place + "/data")
    saw["as it was"] = "allowed" if tool("-c", "1", "--volume-name", "v",
                                         command="exec") == "success" else "broken"
    return saw


def twin():
    here = os.environ["DROSTE_VOLUME"]
    os.mkdir(here + "/sub")
    return seen(os.rename, here + "/sub", here + "/other")
