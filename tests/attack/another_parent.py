# attack: leaves processes whose parent is the one that watches over it (CLONE_PARENT), some with a
#     signal for it at their end
# rows: 52
# expect: DENY(EPERM)
# isolation: full light landlock
# unconfined: unsafe


CLONE_PARENT = 0x8000


def leave(flags, then):
    libc.syscall.restype = ctypes.c_long
    pid = libc.syscall(ctypes.c_long(NR["clone"]), ctypes.c_long(flags), None, None, None, None)
    if pid == 0:
        then()
        os._exit(0)
    return "left" if pid > 0 else errno.errorcode[ctypes.get_errno()]


def attack():
    """Were it allowed, that none of them outlives the sandbox is what the driver would look at."""
    saw = {"asleep": leave(CLONE_PARENT | signal.SIGCHLD, lambda: time.sleep(1000)),
           "of another session": leave(CLONE_PARENT | signal.SIGCHLD,
                                       lambda: (os.setsid(), time.sleep(1000))),
           "deaf":
           leave(CLONE_PARENT, lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)),
                                        time.sleep(1000)))}
    for number in (signal.SIGKILL, signal.SIGUSR1, signal.SIGSTOP, 0):
        saw["ends with %d" % number] = leave(CLONE_PARENT | number, lambda: None)
    return saw


def twin():
    """A child of its own is its own to wait for."""
    return in_child(lambda: "success")
