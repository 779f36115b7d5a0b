# attack: makes an abstract UNIX socket that a sibling sandbox could see
# expect: DENY(EPERM|ECONNREFUSED|EACCES)
# isolation: full light landlock
# needs: landlock
# unconfined: safe


def attack():
    """That a name of its own is not the network namespace's: what it binds, /proc/net/unix shows."""
    server = socket.socket(socket.AF_UNIX)
    name = "droste-attack%d" % os.getpid()
    done = seen(server.bind, "\0" + name)
    return done if done != "success" or name in read("/proc/net/unix").decode() else "EACCES"


def twin():
    server = socket.socket(socket.AF_UNIX)
    return seen(server.bind, TMP + "/own%d.sock" % os.getpid())
