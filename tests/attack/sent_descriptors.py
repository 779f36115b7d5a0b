# attack: sends descriptors along to the host: files of its own, whole sockets, hundreds at once
# rows: 79
# expect: DENY(EPERM|ENOMEM|ETOOMANYREFS|EINVAL|dropped)
# isolation: full light landlock
# needs: fresh
# unconfined: never


def send(fds):
    """With a byte of what the guest says anyway: that it is ready. A kernel before Linux 6.16
    cannot refuse them; then they are dropped, and the host's table of descriptors is what the
    driver looks at."""
    link = guest()["state"].link
    with socket.socket(fileno=os.dup(3)) as channel:
        try:
            socket.send_fds(channel, [link.send_queue[0][:1]], fds)
        except OSError as e:
            return errno.errorcode[e.errno]
    link.send_queue[0] = link.send_queue[0][1:]
    return "dropped"


def attack():
    memory = os.memfd_create("x")
    os.ftruncate(memory, 1 << 20)
    one, _two = socket.socketpair()
    return {"too many": send([memory] * 254), "many": send([memory] * 253), "itself": send([3]),
            "a socket": send([one.fileno()])}


def twin():
    """To itself it may."""
    one, two = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])
    return "success" if len(socket.recv_fds(two, 1, 1)[1]) == 1 else "lost"
