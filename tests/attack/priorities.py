# attack: raises limits, becomes a real-time process, locks its memory
# rows: 47
# expect: DENY(EPERM|EACCES|ENOMEM|ValueError|ENOSYS|EINVAL|highest)
# isolation: full light landlock
# unconfined: safe


def attack():
    import resource
    saw = {}
    for name in ("NPROC", "NOFILE", "FSIZE", "DATA", "CORE"):
        limit = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(limit)
        more = hard + 1 if hard >= 0 else hard
        saw[name] = "success" if hard < 0 else seen(resource.setrlimit, limit, (more, more))
    priority = ctypes.byref(ctypes.c_int(10))
    saw["FIFO"] = in_child(raw, "sched_setscheduler", 0, 1, priority)
    saw["RR"] = in_child(raw, "sched_setscheduler", 0, 2, priority)
    # A worker whose operations are short may be ahead already (src/env/local/cpu_priority.c).
    saw["nice"] = ("highest" if os.getpriority(os.PRIO_PROCESS, 0) == -20
                   else in_child(raw, "setpriority", 0, 0, -20))
    saw["ioprio"] = in_child(raw, "ioprio_set", 1, 0, 1 << 13)
    saw["oom_score_adj"] = in_child(seen, write, "/proc/self/oom_score_adj", b"-1000")
    return saw


def twin():
    """Less is always allowed."""
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    os.nice(1)
    return seen(resource.setrlimit, resource.RLIMIT_NOFILE, (64, hard))
