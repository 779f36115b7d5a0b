# attack: calls chroot and pivot_root
# rows: 16
# expect: DENY(EPERM|ENOSYS|EINVAL)
# isolation: full light landlock
# unconfined: safe


def attack():
    new, old = TMP + "/r", TMP + "/r/old"
    os.makedirs(old, exist_ok=True)
    fd = os.open("/", os.O_PATH)
    return {"pivot_root": in_child(raw, "pivot_root", new.encode(), old.encode()),
            "pivot_root .": in_child(raw, "pivot_root", b".", b"."),
            "chroot": in_child(raw, "chroot", new.encode()),
            "chroot of a descriptor": in_child(raw, "chroot", b"/proc/self/fd/%d" % fd)}


def twin():
    os.makedirs(TMP + "/d", exist_ok=True)
    return seen(os.chdir, TMP + "/d")
