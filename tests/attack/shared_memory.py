# attack: meets the host in System V memory, semaphores or queues under a key that both know
# rows: 45
# expect: DENY(ENOENT|ENOSYS|EPERM)
# isolation: full light landlock
# unconfined: safe


def attack():
    key = HOST["shm_key"]
    return {"shm": raw("shmget", key, 4096, 0o600), "msg": raw("msgget", key, 0o600),
            "sem": raw("semget", key, 1, 0o600)}


def twin():
    """Memory that is shared between its own processes."""
    import mmap
    shared = mmap.mmap(-1, 4096)
    if os.fork() == 0:
        shared[0] = 7
        os._exit(0)
    os.wait()
    return "success" if shared[0] == 7 else "not shared"
