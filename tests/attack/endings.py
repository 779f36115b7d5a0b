# attack: ends its process in all the ways there are
# rows: 100
# expect: KILL(exit|signal)
# expect sys_exit: DENY(SystemExit)
# expect os_exit: KILL(exit 3)
# expect abort: KILL(signal 6)
# expect kill: KILL(signal 9)
# expect segv: KILL(signal 11)
# expect exec: KILL(exit 0)
# expect close: KILL(exit|protocol|signal) or DENY(lost|SandboxLost)
# isolation: full light landlock
# variants: sys_exit os_exit abort kill segv exec close
# unconfined: unsafe


def attack(kind):
    if kind == "sys_exit":
        sys.exit(4)
    elif kind == "os_exit":
        os._exit(3)
    elif kind == "abort":
        os.abort()
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "segv":
        ctypes.string_at(0)
    elif kind == "exec":
        os.execv("/usr/bin/true", ["true"])
    elif kind == "close":
        os.close(3)
    time.sleep(30)
    return "success"


def twin():
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    return "success" if os.waitpid(pid, 0)[1] == 3 << 8 else "?"
