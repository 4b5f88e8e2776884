"""A GitOps repository for the bench: the same object ids every time.

A tree of small YAML files, one commit per change, a branch per team and a tag
per release. Written through `git fast-import`.
"""

import random
import subprocess

FIRST_DATE = 1_700_000_000


def make(path, files=1500, commits=400, branches=300):
    """Creates a bare repository at `path`."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
    importer = subprocess.Popen(
        ["git", "-C", path, "fast-import", "--quiet"], stdin=subprocess.PIPE
    )
    write = importer.stdin.write
    chance = random.Random(7)
    names = [f"apps/team-{n % 40:02}/service-{n:04}/values.yaml" for n in range(files)]
    for turn in range(commits):
        changed = names if turn == 0 else chance.sample(names, 3)
        write(b"commit refs/heads/main\n")
        write(b"mark :%d\n" % (turn + 1))
        write(b"committer Bot <bot@example.test> %d +0000\n" % (FIRST_DATE + turn * 300))
        message = b"change %d" % turn
        write(b"data %d\n%s\n" % (len(message), message))
        for name in changed:
            text = manifest(chance, name, turn).encode()
            write(b"M 644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text))
    for branch in range(branches):
        mark = commits - branch % commits
        write(b"reset refs/heads/team-%03d\nfrom :%d\n" % (branch, mark))
    for tag in range(0, commits, 20):
        write(b"reset refs/tags/v1.%d.0\nfrom :%d\n" % (tag // 20, tag + 1))
    importer.stdin.close()
    if importer.wait() != 0:
        raise SystemExit("git fast-import failed")
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(path, "config", setting, "true")
    git(path, "repack", "-adq", "--write-bitmap-index")
    git(path, "pack-refs", "--all")


def manifest(chance, name, turn):
    """One values file: mostly the same from change to change."""
    lines = [f"# {name}", f"image: registry.example.test/app:{turn}", f"digest: {chance.getrandbits(256):064x}"]
    stable = random.Random(name)
    lines += [f"setting_{n}: {stable.getrandbits(40)}" for n in range(40)]
    return "\n".join(lines) + "\n"


def git(path, *arguments):
    """What git prints, in this repository."""
    done = subprocess.run(["git", "-C", path, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
