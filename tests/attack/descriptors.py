# attack: opens files until no descriptor is left, then speaks with the host
# rows: 59
# expect: DENY(EMFILE|spoken)
# isolation: full light landlock
# settings: --open-files 200
# unconfined: unsafe


def attack():
    kept, saw = [], {}
    try:
        while len(kept) < 10 ** 6:
            kept.append(os.dup(0))
    except OSError as e:
        saw["dup"] = errno.errorcode[e.errno]
    saw["open"] = seen(os.open, "/dev/null", os.O_RDONLY)
    saw["pipe"] = seen(os.pipe)
    try:
        llm_query("x")
        saw["call"] = "spoken"
    except RuntimeError:    # the model has no answer here; the host has said so
        saw["call"] = "spoken"
    for fd in kept:
        os.close(fd)
    return saw


def twin():
    return seen(os.close, os.dup(0))
