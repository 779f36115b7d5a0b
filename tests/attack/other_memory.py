# attack: takes hold of other processes: ptrace, process_vm_readv, pidfd_getfd, kcmp
# rows: 33
# expect: DENY(EPERM|ENOSYS|ESRCH|EINVAL|EBADF)
# isolation: full light landlock
# needs: seccomp
# unconfined: safe


def attack():
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
        os._exit(0)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    remote = (ctypes.c_uint64 * 2)(ctypes.addressof(local), 8)
    saw = {"kcmp": raw("kcmp", os.getpid(), pid, 0, 0, 0),
           "readv": raw("process_vm_readv", pid, local, 1, remote, 1, 0),
           "writev": raw("process_vm_writev", pid, local, 1, remote, 1, 0),
           "madvise": raw("process_madvise", -1, remote, 1, 20, 0),
           "ptrace me": in_child(raw, "ptrace", 0, 0, None, None),
           "ptrace child": raw("ptrace", 16, pid, None, None),
           "ptrace 1": raw("ptrace", 16, 1, None, None) if HOST["level"] else "success"}
    saw["pidfd_getfd"] = raw("pidfd_getfd", 99, 0, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return saw


def twin():
    """It may end its own children, and learn how they ended."""
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
    os.kill(pid, signal.SIGKILL)
    return "success" if os.waitpid(pid, 0)[1] == signal.SIGKILL else "?"
