# attack: makes empty files, directories and links without end in /tmp and /dev/shm
# rows: 22
# expect: DENY(ENOSPC|EDQUOT)
# isolation: full light
# variants: files directories links shm
# settings: --tmp-size 16M
# unconfined: unsafe


def attack(kind):
    place = ("/dev/shm" if kind == "shm" else TMP) + "/many"
    make = {"files": lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY)),
            "directories": os.mkdir, "links": lambda p: os.symlink("x", p)}.get(kind)
    make = make or (lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY)))
    os.mkdir(place)
    n = 0
    try:
        for n in range(10 ** 6):
            make("%s/%d" % (place, n))
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        for k in range(n):
            (os.rmdir if kind == "directories" else os.unlink)("%s/%d" % (place, k))
    return "success"


def twin():
    return seen(write, TMP + "/one")
