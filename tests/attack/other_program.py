# attack: becomes another program that keeps the channel and speaks there
# rows: 79
# expect: KILL(protocol)
# expect valid: INERT(forged)
# expect silent: KILL(timeout|signal 2)
# expect child: INERT(forged)
# isolation: full light landlock
# variants: garbage valid silent child
# settings: --execute-timeout 2 --grace 0.3
# unconfined: never


def attack(kind):
    value = b'{"attack": "forged", "twin": "success"}'
    valid = frame(RESULT, running(), b'{"status": "ok", "submitted": 0}', parts(value))
    greet()
    write(TMP + "/valid", valid)
    os.set_inheritable(3, True)
    program = {"garbage": "exec cat /dev/urandom >&3", "silent": "exec sleep 1000",
               "valid": "cat $TMPDIR/valid >&3; exec sleep 1000",
               "child": "cat $TMPDIR/valid >&3"}[kind]
    if kind == "child":
        import subprocess
        subprocess.run(["/bin/sh", "-c", program], pass_fds=[3])
        time.sleep(30)
        return "the host went on"
    os.execv("/bin/sh", ["sh", "-c", program])


def twin():
    import subprocess
    return seen(subprocess.run, ["/usr/bin/env"], check=True, stdout=subprocess.DEVNULL)
