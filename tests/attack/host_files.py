# attack: reads the host's secrets: /etc/shadow, root's home, this user's files, the configuration,
#     sockets
# rows: 1
# expect: DENY(ENOENT|EACCES)
# isolation: full light landlock
# unconfined: safe


def attack():
    paths = ["/etc/shadow", "/root", "/root/.ssh", HOST["secret"], HOST["home"], HOST["place"],
             HOST["source"] + "/Makefile", HOST["droste"], "/sys",
             "/root/.config/droste/config.ini", "/old", "/new"]
    if not HOST["rootfs"]:      # a directory for --rootfs has its own
        paths += ["/var", "/run", "/boot", "/home"]
    return {path: seen(os.listdir if os.path.isdir(path) else read, path) for path in paths}


def twin():
    return seen(read, "/usr/bin/env")
