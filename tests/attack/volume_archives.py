# attack: leaves archives that unpack to much more, or to paths outside, for the host to unpack
# rows: 25
# expect: INERT(made|a file|allowed)
# isolation: full light landlock
# alike: what is tried is what the host does with the volume
# volume: v
# unconfined: never


def attack():
    import io
    import tarfile
    import zipfile
    here = os.environ["DROSTE_VOLUME"]
    with zipfile.ZipFile(here + "/bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("zeros", bytes(64 << 20))
        z.writestr("../../../home/new", b"x")
    with tarfile.open(here + "/out.tar.gz", "w:gz") as t:
        info = tarfile.TarInfo("/" + HOST["place"].strip("/") + "/home/new")
        info.size = 1
        t.addfile(info, io.BytesIO(b"x"))
    return "made"


def host(tool):
    import os
    saw = {}
    for name in ("bomb.zip", "out.tar.gz"):
        word = tool("get", "v", name)
        got = os.path.join(tool.to, name)
        saw[name] = ("a file" if word == "success" and os.path.getsize(got) < 1 << 20
                     and sorted(os.listdir(tool.to)) == [name] else word)
        os.unlink(got)
    for words in (("snapshot", "v", "s"), ("restore", "v", "s"),
                  ("put", "v", "/etc/hostname", "again.zip")):
        saw[words[0]] = "allowed" if tool(*words) == "success" else "broken"
    return saw


def twin():
    """It may unpack what it likes itself."""
    import zipfile
    with zipfile.ZipFile(os.environ["DROSTE_VOLUME"] + "/bomb.zip") as z:
        return seen(z.read, "zeros")
