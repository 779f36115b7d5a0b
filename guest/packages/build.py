"""Builds a directory of packages in a sandbox of its own (src/api/packages_build.c).

The host runs this file as one cell, then calls build_packages(). Nothing of a wheel is executed
here; with `sdists`, the build scripts of source distributions are.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

LINES = 12      # of an installer's messages
LENGTH = 1500


class Refused(Exception):
    pass


def read_toml(name, text):
    try:
        import tomllib as toml
    except ImportError:
        try:
            from pip._vendor import tomli as toml
        except ImportError:
            raise Refused("%s: reading it needs Python 3.11 or pip 21.2" % name) from None
    try:
        return toml.loads(text)
    except ValueError as e:
        raise Refused("%s: %s" % (name, e)) from None


def lines_of_project(name, text):
    project = read_toml(name, text).get("project", {})
    if "dependencies" in project.get("dynamic", ()):
        raise Refused("%s: its dependencies are dynamic; give a lock file, or a requirements file"
                      % name)
    return list(project.get("dependencies", ()))


def line_of_package(name, package, sdists):
    """One entry of a pylock.toml as a requirement with hashes."""
    files = list(package.get("wheels", ()))
    if sdists and "sdist" in package:
        files.append(package["sdist"])
    if not files or "version" not in package:
        raise Refused("%s: '%s' has no wheel; directories, repositories, archives and, without "
                      "--sdists yes, source distributions are not installed"
                      % (name, package.get("name", "?")))
    hashes = ["%s:%s" % (kind, digest) for f in files for kind, digest in f["hashes"].items()
              if kind in ("sha256", "sha384", "sha512")]
    if not hashes:
        raise Refused("%s: '%s' has no SHA-2 hash" % (name, package["name"]))
    marker = "; " + package["marker"] if package.get("marker") else ""
    return "%s==%s%s %s" % (package["name"], package["version"], marker,
                            " ".join("--hash=" + h for h in hashes))


def lines_of_pylock(name, text, sdists):
    lock = read_toml(name, text)
    if str(lock.get("lock-version", "")).split(".")[0] != "1":
        raise Refused("%s: it is not a lock file of version 1 (PEP 751)" % name)
    return [line_of_package(name, package, sdists) for package in lock.get("packages", ())]


def lines_of_uv(documents, uv):
    if not uv:
        raise Refused("uv.lock: reading it needs uv, which is not installed; install it, or run "
                      "`uv export --format requirements-txt` elsewhere")
    os.makedirs("project", exist_ok=True)
    for kind, name in (("uv-project", "pyproject.toml"), ("uv-lock", "uv.lock")):
        with open("project/" + name, "w") as f:
            f.write(documents[kind]["text"])
    command = [uv, "export", "--no-config", "--offline", "--frozen", "--no-dev",
               "--no-emit-project", "--format", "requirements-txt", "--no-cache",
               "--project", "project", "--python", sys.executable]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Refused("uv.lock: " + last_words(done.stderr))
    lines = done.stdout.replace("\\\n", " ").splitlines()     # hashes stand on lines of their own
    return [line for line in lines if not line.lstrip().startswith("#")]


def requirement_lines(config):
    lines = config["requirements"].splitlines()
    documents = {d["kind"]: d for d in config["documents"]}
    for d in config["documents"]:
        if d["kind"] == "pyproject":
            lines += lines_of_project(d["name"], d["text"])
        elif d["kind"] == "pylock":
            lines += lines_of_pylock(d["name"], d["text"], config["sdists"])
    if "uv-lock" in documents:
        lines += lines_of_uv(documents, config["uv"])
    for line in lines:
        if line.lstrip().startswith("-") and line.strip() != "--require-hashes":
            raise Refused("'%s' is not a requirement" % line[:100])
    return lines


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    begins = [i for i, line in enumerate(lines) if line.startswith(("error:", "×"))]
    if begins:          # uv tells the causes after it
        errors = lines[begins[0]:][:LINES]
    if any("subprocess-exited" in line for line in errors):
        errors = []     # what it said stands before
    refused = [line for line in lines if "allow-net" in line or "CERTIFICATE" in line][:1]
    return " ".join(refused + (errors or lines)[-LINES:])[-LENGTH:]


def installer(config):
    """The command, up to the options that pip and uv have in common."""
    if config["uv"]:
        return [config["uv"], "pip", "install", "--no-config", "--python", sys.executable,
                "--link-mode", "copy", "--cache-dir", "cache", "--no-progress"]
    return [sys.executable, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check",
            "--no-input", "--no-color", "install", "--no-cache-dir", "--progress-bar", "off",
            "--no-compile", "--no-warn-script-location"] + [
                w for host in config["trusted"] for w in ("--trusted-host", host)] + (
                ["--cert", config["cert"]] if config["cert"] else [])


def install_command(config):
    command = installer(config) + ["--target", "site"]
    if not config["sdists"]:
        command += ["--only-binary", ":all:"]
    if config["indexes"]:
        command += ["--index-url", config["indexes"][0]]
        for url in config["indexes"][1:]:
            command += ["--extra-index-url", url]
    else:
        command.append("--no-index")
    for place in config["find_links"]:
        command += ["--find-links", place]
    if config["constraints"]:
        command += ["--constraint", "constraints.txt"]
    if config["hashes"]:
        command.append("--require-hashes")
    return command + ["--requirement", "requirements.txt"]


def can_share_work():
    """Whether compileall may start processes: they need semaphores."""
    try:
        import multiprocessing
        multiprocessing.Semaphore()
    except (ImportError, OSError):
        return False
    return True


def compile_all():
    """Without times, so that equal packages are equal; errors are those of unused files."""
    command = [sys.executable, "-I", "-m", "compileall", "-q", "--invalidation-mode",
               "unchecked-hash"] + (["-j", "0"] if can_share_work() else []) + ["site"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def install(config):
    for name in ("site", "tmp", "home"):
        os.mkdir(name)
    lines = requirement_lines(config)
    config["hashes"] = any("--hash" in line for line in lines)
    for name, text in (("requirements.txt", "\n".join(lines) + "\n"),
                       ("constraints.txt", config["constraints"])):
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
    here = os.getcwd()
    os.environ.update(TMPDIR=here + "/tmp", HOME=here + "/home")
    if config["cert"]:
        os.environ["SSL_CERT_FILE"] = config["cert"]
    done = subprocess.run(install_command(config), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          encoding="utf-8", errors="replace")
    if done.returncode != 0:
        if "No space left on device" in done.stdout or "os error 28" in done.stdout:
            return {"disk_full": True}
        if "File too large" in done.stdout or "os error 27" in done.stdout:
            return {"too_large": True}
        return {"error": last_words(done.stdout)}
    compile_all()
    return {}


def build_packages(text):
    try:
        return install(json.loads(text))
    except Refused as e:
        return {"error": str(e)}
    except OSError as e:
        return {"disk_full": True} if e.errno == 28 else {"error": str(e)}
