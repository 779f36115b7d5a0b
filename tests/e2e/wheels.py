"""Makes wheels and source distributions, well-formed and not."""
import hashlib
import io
import os
import tarfile
import zipfile


def make_wheel(directory, name, files, version="1.0"):
    """A wheel with these files (a dict of texts or bytes); returns its SHA-256."""
    path = os.path.join(directory, "%s-%s-py3-none-any.whl" % (name, version))
    info = "%s-%s.dist-info/" % (name, version)
    files = {**files,
             info + "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version),
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                             "Tag: py3-none-any\n"}
    record = "".join("%s,,\n" % f for f in files) + info + "RECORD,,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in {**files, info + "RECORD": record}.items():
            entry = zipfile.ZipInfo(file)       # without the time: always the same bytes
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


BACKEND = """
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    %s
    name = "%s-1.0-py3-none-any.whl"
    info = "%s-1.0.dist-info/"
    with zipfile.ZipFile(directory + "/" + name, "w") as archive:
        archive.writestr("%s.py", "built = True")
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: %s\\nVersion: 1.0\\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n"
                                         "Root-Is-Purelib: true\\n")
        archive.writestr(info + "RECORD", "")
    return name
"""


def make_sdist(directory, name, code="pass"):
    """A source distribution whose build runs this code; it needs no other package."""
    files = {
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\n"
                          "backend-path = ['.']\n[project]\nname = '%s'\nversion = '1.0'\n" % name,
        "PKG-INFO": "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n" % name,
        "backend.py": BACKEND % ((code,) + (name,) * 4),
    }
    with tarfile.open(os.path.join(directory, "%s-1.0.tar.gz" % name), "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo("%s-1.0/%s" % (name, file))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
