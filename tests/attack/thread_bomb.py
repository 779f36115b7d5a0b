# attack: starts threads without end
# rows: 53
# expect: DENY(RuntimeError)
# isolation: full light landlock
# alone: landlock
# settings: --processes 40
# unconfined: unsafe


def attack():
    import _thread
    stop = _thread.allocate_lock()
    stop.acquire()
    started = 0

    def wait():
        with stop:
            pass
    try:
        while started < 100000:
            _thread.start_new_thread(wait, ())
            started += 1
    except Exception as e:
        return type(e).__name__
    finally:
        stop.release()
    return "success"


def twin():
    return in_thread()
