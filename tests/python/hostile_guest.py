"""Code for sessions whose guest is hostile: it replaces functions of the guest's library."""

#: `state` is the guest's; `Kept` hands on what a class that replaces its library does not replace.
#: fork_by_hand() forks as the library does, but its copy need not wait for an operation: true in
#: the copy. `FORKED` is the record by which a keeper names itself (src/jail/zygote_wire.h), `ENDED`
#: that of an end. A replaced zygote_fork returns UNANSWERED in the parent.
PATCH = """
import array, os, signal, socket, struct, sys
state = sys.modules['droste_guest'].state
kept = state.library
class Kept:
    def __getattr__(self, name):
        return getattr(kept, name)
    def zygote_fork_asked(self):
        return 0
UNANSWERED = 2
FORKED = struct.pack('<QiIi4xqq', 0, 0, 0xFFFFFFFE, -1, 0, 0)
ENDED = struct.pack('<QiIi4xqq', 0, 0, 0, 0, 0, 0)
def fork_by_hand(status):
    lent = socket.socket(fileno=status)
    fds = array.array('i', lent.recvmsg(1, 1000)[1][0][2])
    if os.fork():
        lent.close()
        for fd in fds: os.close(fd)
        return False
    os.setsid()
    lent.send(FORKED)
    lent.detach()
    for fd, number in zip(fds, (3, 1, 2)): os.dup2(fd, number)
    return True
"""
