# attack: reads the host's secrets: /etc/shadow, root's home, this user's files, the configuration,
#     sockets
# rows: 1
# expect: DENY(ENOENT|EACCES)
# isolation: full light landlock
# unconfined: safe


def attack():
    paths = ["/etc/shadow", "/root", "/root/.ssh", HOST["secret"], HOST["home"], HOST["place"],
             HOST["source"] + "/Makefile", HOST["droste"], "/var", "/run", "/boot", "/sys", "/home",
             "/root/.config/droste/config.ini", "/old", "/new"]
    return {path: seen(os.listdir if os.path.isdir(path) else read, path) for path in paths}


def twin():
    return seen(read, "/usr/bin/env")
