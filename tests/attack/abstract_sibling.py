# attack: makes an abstract UNIX socket that a sibling sandbox could see
# rows: 70
# expect: DENY(EPERM)
# isolation: landlock
# needs: landlock
# unconfined: safe


def attack():
    """Two sandboxes with sockets, at the other levels: siblings_cannot_meet_over_abstract_sockets
    in tests/unit/session/test_wall.c."""
    return seen(lambda: socket.socket(socket.AF_UNIX).bind("\0droste-attack%d" % os.getpid()))


def twin():
    return connect_own("")
