# attack: reaches services of the host: loopback, the cloud's metadata, sockets of Docker, D-Bus,
#     ssh-agent, X11
# rows: 69
# expect: DENY(ENETUNREACH|ENOENT|EACCES|EPERM|ECONNREFUSED|EAFNOSUPPORT|EADDRNOTAVAIL|none)
# isolation: full light landlock
# unconfined: safe


def connect(family, address):
    s = socket.socket(family)
    s.settimeout(1)
    s.connect(address)


def attack():
    saw = {}
    for name, address in (("loopback", ("127.0.0.1", HOST["tcp"])),
                          ("any", ("0.0.0.0", HOST["tcp"])),
                          ("metadata", ("169.254.169.254", 80))):
        saw[name] = seen(connect, socket.AF_INET, address)
    for path in (HOST["unix"], "/var/run/docker.sock", "/run/docker.sock",
                 "/run/dbus/system_bus_socket",
                 "/run/user/%d/bus" % os.getuid(), "/tmp/.X11-unix/X0", "/run/systemd/private"):
        saw[path] = seen(connect, socket.AF_UNIX, path)
    for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"):
        saw[name] = os.environ.get(name, "none")
    return saw


def twin():
    return connect_own(TMP + "/own%d.sock" % os.getpid())
