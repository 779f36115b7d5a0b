# attack: uses up what the kernel holds for its user in signals and timers, so that others have
#     none; pins memory
# rows: 47
# expect: DENY(bounded)
# isolation: full light landlock
# alone: landlock
# variants: signals timers memory
# unconfined: safe


MANY = 4096


def signals():
    """Queued to itself, and blocked."""
    number = signal.SIGRTMIN
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    info = (ctypes.c_int * 32)(int(number), 0, -1)
    return all(raw("rt_sigqueueinfo", os.getpid(), int(number), info) == "success"
               for _ in range(MANY))


def timers():
    """Each holds a signal from its beginning."""
    ident = ctypes.c_int()
    return all(raw("timer_create", 1, None, ctypes.byref(ident)) == "success" for _ in range(MANY))


def memory():
    """16 MiB that cannot be swapped out."""
    import mmap
    place = mmap.mmap(-1, 16 << 20)
    at = ctypes.addressof(ctypes.c_char.from_buffer(place))
    return raw("mlock", at, 16 << 20) == "success"


def attack(kind):
    return in_child(lambda: "without end" if {"signals": signals, "timers": timers,
                                              "memory": memory}[kind]()
                    else "bounded")


def twin():
    """A hundred of each, and a page."""
    def some():
        global MANY
        MANY = 100
        import mmap
        place = mmap.mmap(-1, 4096)
        at = ctypes.addressof(ctypes.c_char.from_buffer(place))
        return ("success" if signals() and timers() and raw("mlock", at, 4096) == "success"
                else "refused")
    return in_child(some)
