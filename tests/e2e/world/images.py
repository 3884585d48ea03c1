"""Home-made images, since a test machine may have no registry at hand.

Two docker archives from what the distribution ships: a pause program and busybox with its links.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
PAUSE = "registry.k8s.io/pause:3.10"
BUSYBOX = "docker.io/library/busybox:1"
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var")
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnobody:x:65534:\n",
}


def layer(programs, links):
    """One uncompressed layer: {path in the image: file here}, {link: what it points at}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def entry(name, mode, content=None, link=None):
            info = tarfile.TarInfo(name)
            info.mode = mode
            if link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, link
            elif content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))

        for folder in FOLDERS:
            entry(folder, 0o1777 if folder == "tmp" else 0o755)
        for name, text in ACCOUNTS.items():
            entry(name, 0o644, text.encode())
        for name, path in programs.items():
            with open(path, "rb") as file:
                entry(name, 0o755, file.read())
        for name, target in links.items():
            entry(name, 0o777, link=target)
    return out.getvalue()


def archive(name, path, content, config):
    """Writes a docker archive with one layer, the form that `ctr images import` takes."""
    digest = hashlib.sha256(content).hexdigest()
    image = json.dumps(
        {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "created": "2020-01-01T00:00:00Z",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                **config,
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
        }
    ).encode()
    config_name = hashlib.sha256(image).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [digest + "/layer.tar"]}]
    files = {
        config_name: image,
        digest + "/layer.tar": content,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for file, data in files.items():
            info = tarfile.TarInfo(file)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def build(folder):
    """Builds both images into `folder`; returns the paths of the archives."""
    os.makedirs(folder, exist_ok=True)
    program = os.path.join(folder, "pause")
    subprocess.run(
        ["cc", "-Os", "-static", "-o", program, os.path.join(HERE, "pause.c")], check=True
    )
    pause = os.path.join(folder, "pause.tar")
    archive(PAUSE, pause, layer({"pause": program}, {}), {"Entrypoint": ["/pause"]})

    busybox = shutil.which("busybox")
    applets = subprocess.run(
        [busybox, "--list"], check=True, capture_output=True, text=True
    ).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    shell = os.path.join(folder, "busybox.tar")
    archive(BUSYBOX, shell, layer({"bin/busybox": busybox}, links), {"Cmd": ["sh"]})
    return [pause, shell]
