# attack: leaves directories that are hard to remove: deeper than a path is long, not to be listed,
#     with hostile names
# rows: 23
# expect: CONTAIN(left)
# isolation: full light landlock
# variants: deep modes names
# unconfined: unsafe


def deep():
    """2,000 below each other: no path leads to the last, and few processes may have as many
    descriptors."""
    for _ in range(2000):
        os.mkdir("d" * 60, 0o700)
        os.chdir("d" * 60)


def modes():
    """Whoever comes after must give himself the rights first."""
    os.makedirs("a/b/c", 0o700)
    for path, mode in (("a/closed", 0o300), ("a/b/closed", 0o300), ("a/b/c/closed", 0o100)):
        os.mkdir(path, 0o700 if mode == 0o100 else mode)
        if mode == 0o300:
            write(path + "/inside")
    os.mkdir("a/none", 0)


def names():
    """As a program that reads names line by line, or as words, would not want them; numbers are
    what the host may want for itself."""
    for name in (b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"$(id)", b"x" * 255, b"1", b"2", b"3"):
        os.makedirs(os.path.join(name, b"inner", name))
        write(os.path.join(name, b"inner", b"file"))
        os.symlink(HOST["home"], os.path.join(name, b"link"))
    os.mkfifo("fifo")
    os.mknod("socket", 0o140600)
    os.symlink(HOST["home"], "home")


def attack(kind):
    os.chdir(TMP)
    {"deep": deep, "modes": modes, "names": names}[kind]()
    os.chdir(TMP)
    return "left"


def twin():
    """What it leaves in the usual way goes in the usual way."""
    return seen(os.makedirs, TMP + "/usual/directory")
