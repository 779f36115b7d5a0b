"""Writes images: OCI layouts and docker archives, of layers that tests make."""
import gzip
import hashlib
import io
import json
import os
import platform
import tarfile

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def layer(entries):
    """A tar archive of (name, contents) or of TarInfo, or (TarInfo, contents)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            name, data = entry
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = data if isinstance(data, bytes) else data.encode()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tree(directory):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(directory)):
            tar.add(os.path.join(directory, name), name)
    return out.getvalue()


def special(name, kind, target="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def config_of(layers, **more):
    return json.dumps({
        "os": "linux", "architecture": MACHINE, "config": {"Env": more.pop("env", [])},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(l) for l in layers]},
        **more}).encode()


def compress(data):
    """The same bytes at any time, at the fastest level: the layer with Python has 30 MB."""
    return gzip.compress(data, 1, mtime=0)


def write_layout(place, layers, tag="latest", pack=compress, config=None, damage=None):
    """`damage(digest, data)` returns what is stored under the digest."""
    blobs = os.path.join(place, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)

    def put(data):
        digest = sha256(data)
        with open(os.path.join(blobs, digest), "wb") as file:
            file.write(damage(digest, data) if damage else data)
        return {"digest": "sha256:" + digest, "size": len(data)}

    packed = [{**put(pack(one)), "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
              for one in layers]
    settings = put(config or config_of(layers))
    manifest = put(json.dumps({"schemaVersion": 2, "config": settings, "layers": packed}).encode())
    manifest.update(mediaType="application/vnd.oci.image.manifest.v1+json",
                    annotations={"org.opencontainers.image.ref.name": tag})
    with open(os.path.join(place, "index.json"), "w") as index:
        json.dump({"schemaVersion": 2, "manifests": [manifest]}, index)
    with open(os.path.join(place, "oci-layout"), "w") as file:
        file.write('{"imageLayoutVersion": "1.0.0"}')
    return settings["digest"].split(":")[1]


def write_archive(path, layers):
    config = config_of(layers)
    names = ["%d/layer.tar" % i for i in range(len(layers))]
    about = json.dumps([{"Config": "config.json", "RepoTags": ["x:1"], "Layers": names}])
    with open(path, "wb") as file:
        file.write(layer([*zip(names, layers), ("config.json", config), ("manifest.json", about)]))
