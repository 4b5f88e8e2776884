"""One run, two servers: nginx with git http-backend, and tidegate in front of it.

Four requests, as real clients send them: a warm poll, a depth-1 clone, a
fetch of one commit, a full clone. Every answer is checked before it is
measured. What counts on a busy machine is the ratio inside one run, and the
CPU time per request, not the absolute rate.
"""

import argparse
import http.client
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import repository
import servers

SCRIPT = """
wrk.method = "POST"
wrk.path = "{path}"
wrk.headers["Content-Type"] = "application/x-git-upload-pack-request"
wrk.headers["Accept"] = "application/x-git-upload-pack-result"
wrk.headers["Git-Protocol"] = "version=2"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
function done(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %.3f %.3f %d\\n", summary.requests, summary.duration, summary.bytes,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout))
end
"""


def line(text):
    """One pkt-line."""
    return b"%04x%s\n" % (len(text) + 5, text.encode())


def command(name, arguments):
    """A v2 request."""
    head = line(f"command={name}") + line("agent=git/2.47.3") + line("object-format=sha1") + b"0001"
    return head + b"".join(line(argument) for argument in arguments) + b"0000"


def requests(path):
    """The four requests, by name: body, connections, whether the answer is a pack."""
    tip = repository.git(path, "rev-parse", "refs/heads/main")
    before = repository.git(path, "rev-parse", "refs/heads/main~1")
    tips = sorted(set(repository.git(path, "for-each-ref", "--format=%(objectname)").split()))
    prefixes = ["peel", "symrefs", "ref-prefix refs/heads/", "ref-prefix refs/tags/"]
    options = ["thin-pack", "no-progress", "ofs-delta"]
    return {
        "warm poll (ls-refs)": (command("ls-refs", prefixes), 8, False),
        "depth-1 clone": (command("fetch", options + ["deepen 1", f"want {tip}", "done"]), 8, True),
        "one-commit fetch": (command("fetch", options + [f"want {tip}", f"have {before}", "done"]), 8, True),
        "full clone": (command("fetch", options + [f"want {oid}" for oid in tips] + ["done"]), 4, True),
    }


def post(server, name, body):
    """One checked request; its answer's bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    headers = {
        "Content-Type": "application/x-git-upload-pack-request",
        "Accept": "application/x-git-upload-pack-result",
        "Git-Protocol": "version=2",
    }
    connection.request("POST", f"{server.prefix}/{name}/git-upload-pack", body, headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{server.name}: {answer.status} {data[:300]!r}")
    return data


def pack_of(data):
    """The pack inside a v2 fetch answer."""
    at, pack = 0, bytearray()
    while at + 4 <= len(data):
        size = int(data[at : at + 4], 16)
        if size > 4 and data[at + 4] == 1:
            pack += data[at + 5 : at + size]
        at += max(size, 4)
    return bytes(pack)


def objects(run, source, pack, thin):
    """How many objects a pack holds, as stock git reads it."""
    target = tempfile.mkdtemp(dir=run)
    if thin:
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        subprocess.run(["git", "init", "-q", "--bare", target], check=True)
    words = ["git", "-C", target, "index-pack", "--stdin", "--fix-thin"]
    done = subprocess.run(words, input=pack, capture_output=True)
    shutil.rmtree(target)
    if done.returncode != 0:
        raise SystemExit(f"a pack that git refuses: {done.stderr.decode()}")
    return int.from_bytes(pack[8:12], "big")


def measure(server, name, body, connections, seconds, run):
    """One cell by wrk: requests per second, p50 and p99 in ms, CPU ms per request, MB/s."""
    body_file, script = f"{run}/body.bin", f"{run}/request.lua"
    with open(body_file, "wb") as file:
        file.write(body)
    with open(script, "w") as file:
        file.write(SCRIPT.format(path=f"{server.prefix}/{name}/git-upload-pack", body=body_file))
    words = ["wrk", "-t", "2", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "60s", "-s", script]
    before = server.cpu()
    done = subprocess.run([*words, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, timeout=seconds + 90)
    settle(server)
    spent = None if before is None else server.cpu() - before
    result = [text for text in done.stdout.splitlines() if text.startswith("RESULT ")]
    if not result:
        raise SystemExit(f"wrk: {done.stdout}{done.stderr}")
    count, micros, size, p50, p99, errors = result[0].split()[1:]
    count = max(int(count), 1)
    return {
        "rps": count / (int(micros) / 1e6),
        "p50": float(p50),
        "p99": float(p99),
        "cpu": None if spent is None else spent * 1000 / count,
        "mb": int(size) / (int(micros) / 1e6) / 1e6,
        "errors": int(errors),
    }


def settle(server):
    """Waits until requests that wrk abandoned are through: they belong to this cell."""
    last, deadline = server.cpu(), time.monotonic() + 30
    while last is not None and time.monotonic() < deadline:
        time.sleep(0.3)
        now = server.cpu()
        if now - last < 0.005:
            return
        last = now


def median(cells):
    """The middle cell by rate, with every error counted."""
    middle = sorted(cells, key=lambda cell: cell["rps"])[len(cells) // 2]
    return {**middle, "errors": sum(cell["errors"] for cell in cells)}


def report(rows):
    """A table in Markdown."""
    lines = [
        "| request | server | requests/s | p50 ms | p99 ms | CPU ms/request | MB/s | errors | tidegate is |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for request, nginx, ours in rows:
        factor = ours["rps"] / nginx["rps"]
        verdict = f"{factor:.1f}x the rate"
        if ours["cpu"]:
            verdict += f", {nginx['cpu'] / ours['cpu']:.1f}x less CPU"
        for name, cell, said in (("nginx + http-backend", nginx, ""), ("tidegate", ours, verdict)):
            spent = "-" if cell["cpu"] is None else f"{cell['cpu']:.2f}"
            lines.append(
                f"| {request} | {name} | {cell['rps']:.1f} | {cell['p50']:.2f} | {cell['p99']:.2f} | "
                f"{spent} | {cell['mb']:.1f} | {cell['errors']} | {said} |"
            )
    return "\n".join(lines)


def main():
    """Starts both, checks, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidegate", required=True, help="the release binary")
    parser.add_argument("--seconds", type=int, default=4, help="per cell and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="also write bench/RESULTS.md")
    options = parser.parse_args()
    program = os.path.abspath(options.tidegate)
    needed = {program: os.access(program, os.X_OK), "wrk": shutil.which("wrk")}
    needed |= {path: os.path.exists(path) for path in ("/usr/sbin/nginx", "/usr/sbin/fcgiwrap")}
    missing = [name for name, there in needed.items() if not there]
    if missing:
        raise SystemExit(f"NOT RUN: bench: missing {', '.join(missing)} (conformance/setup.sh installs the tools)")
    started = []
    run = tempfile.mkdtemp(prefix="tidegate-bench-")
    try:
        path = f"{run}/repositories/fleet.git"
        os.makedirs(os.path.dirname(path))
        repository.make(path)
        started.append(servers.start_nginx(run, os.path.dirname(path)))
        started.append(servers.start_tidegate(run, program, started[0]))
        table = report(compare(started, path, options, run))
    finally:
        for server in reversed(started):
            server.stop()
        shutil.rmtree(run, ignore_errors=True)
    git = subprocess.run(["git", "version"], capture_output=True, text=True).stdout.strip()
    head = f"{git}, {os.cpu_count()} cores, {platform.machine()}, {time.strftime('%Y-%m-%d')}"
    print(f"\n{head}\n\n{table}")
    if options.write:
        with open(os.path.join(os.path.dirname(__file__), "RESULTS.md"), "w") as file:
            file.write(f"# tidegate beside nginx with git http-backend\n\n`make bench`: {head}\n\n{table}\n")


def compare(pair, path, options, run):
    """Every request on both servers, in turns, so that a noisy minute hits both."""
    rows = []
    asked = requests(path)
    # one full clone first: a cold answer is another measurement
    post(pair[1], "fleet.git", asked["full clone"][0])
    for request, (body, connections, is_pack) in asked.items():
        counts = []
        for server in pair:
            data = post(server, "fleet.git", body)
            counts.append(objects(run, path, pack_of(data), "fetch" in request) if is_pack else len(data))
        if not is_pack and counts[0] != counts[1]:
            raise SystemExit(f"{request}: answers of {counts} bytes")
        if is_pack and counts[1] > counts[0] * 1.5:
            raise SystemExit(f"{request}: {counts[1]} objects where git sends {counts[0]}")
        cells = ([], [])
        for _ in range(options.rounds):
            for server, results in zip(pair, cells):
                results.append(measure(server, "fleet.git", body, connections, options.seconds, run))
        rows.append((request, median(cells[0]), median(cells[1])))
        print(f"{request}: {counts[0]} and {counts[1]} {'objects' if is_pack else 'bytes'}", file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
