# attack: makes symbolic and hard links that lead to the host's files and reads through them
# rows: 3
# expect: DENY(ENOENT|EACCES|EXDEV|EPERM|EROFS)
# isolation: full light landlock
# unconfined: safe


def attack():
    saw = {}
    for n, target in enumerate((HOST["secret"], "/etc/shadow", "/proc/1/root" + HOST["secret"])):
        link = TMP + "/link%d-%d" % (os.getpid(), n)
        os.symlink(target, link)
        saw["symlink " + target] = seen(read, link)
        os.unlink(link)
        saw["hard link " + target] = seen(os.link, target, link)
        if os.path.lexists(link):
            os.unlink(link)
    return saw


def twin():
    write(TMP + "/twin%d" % os.getpid())
    os.symlink("twin%d" % os.getpid(), TMP + "/twin-link%d" % os.getpid())
    return seen(read, TMP + "/twin-link%d" % os.getpid())
