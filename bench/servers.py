"""The two servers of the bench, on loopback, each ended by its own process ids."""

import os
import signal
import socket
import subprocess
import time
import urllib.request

NGINX = """
user root; worker_processes 2; daemon off; pid {run}/nginx.pid; error_log {run}/nginx.err warn;
events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 1000000; client_max_body_size 0; client_body_buffer_size 1m; gzip off;
  client_body_temp_path {run}/body; fastcgi_temp_path {run}/fcgi; proxy_temp_path {run}/proxy;
  uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      fastcgi_pass unix:{run}/fcgi.sock;
      fastcgi_param SCRIPT_FILENAME {backend};
      fastcgi_param GIT_PROJECT_ROOT {repositories};
      fastcgi_param GIT_HTTP_EXPORT_ALL "1";
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
      fastcgi_param GIT_PROTOCOL $http_git_protocol;
      fastcgi_param SERVER_PROTOCOL $server_protocol;
      fastcgi_param REMOTE_ADDR $remote_addr;
      fastcgi_buffering off; fastcgi_read_timeout 120s;
    }}
  }}
}}
"""

TIDEGATE = """
listen: 127.0.0.1:{port}
admin: 127.0.0.1:{admin}
data: {run}/data
upstreams:
  - host: git.test
    url: http://127.0.0.1:{upstream}
    allow_private: true
git: {{refresh_every: 10m}}
"""


class Server:
    """Processes of one server, and where it listens."""

    def __init__(self, name, port, prefix):
        self.name, self.port, self.prefix = name, port, prefix
        self.children = []
        self.account = accounting_group(name)

    def spawn(self, words, run, env=None):
        """Starts a process in a group of its own, its CPU time accounted with all it starts."""
        account = self.account

        def enter():
            if account:
                with open(f"{account}/cgroup.procs", "w") as file:
                    file.write(str(os.getpid()))

        log = open(os.path.join(run, f"{self.name}.log"), "ab")
        child = subprocess.Popen(
            words, stdout=log, stderr=log, start_new_session=True, env=env, preexec_fn=enter
        )
        self.children.append(child)
        return child

    def stop(self):
        """Ends the groups it started, workers too."""
        for child in reversed(self.children):
            try:
                os.killpg(child.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        for child in self.children:
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        for _ in range(50):
            try:
                if self.account:
                    os.rmdir(self.account)
                break
            except OSError:
                time.sleep(0.1)

    def cpu(self):
        """CPU seconds it has used with all its children; None where nobody accounts them."""
        if not self.account:
            return None
        usage = f"{self.account}/cpuacct.usage"
        if os.path.exists(usage):
            with open(usage) as file:
                return int(file.read()) / 1e9
        with open(f"{self.account}/cpu.stat") as file:
            return int(dict(text.split() for text in file)["usage_usec"]) / 1e6


def accounting_group(name):
    """A control group that adds up CPU time (v1 or v2), or None where none may be made."""
    for base, figure in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
        group = f"{base}/tidegate-bench-{os.getpid()}-{name}"
        try:
            os.makedirs(group, exist_ok=True)
        except OSError:
            continue
        if os.path.exists(f"{group}/{figure}"):
            return group
        os.rmdir(group)
    return None


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(check, what, seconds=30):
    """Tries until `check` succeeds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def listening(port):
    """Whether somebody takes connections there."""
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def start_nginx(run, repositories):
    """nginx, fcgiwrap and stock git http-backend."""
    server = Server("nginx", free_port(), "")
    backend = subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()
    with open(f"{run}/nginx.conf", "w") as file:
        file.write(
            NGINX.format(run=run, port=server.port, repositories=repositories, backend=f"{backend}/git-http-backend")
        )
    # as many CGI processes as the bench has connections, else fcgiwrap's own queue is measured
    server.spawn(["/usr/sbin/fcgiwrap", "-c", "16", "-s", f"unix:{run}/fcgi.sock"], run)
    wait_for(lambda: os.path.exists(f"{run}/fcgi.sock"), "fcgiwrap's socket")
    server.spawn(["/usr/sbin/nginx", "-c", f"{run}/nginx.conf", "-e", f"{run}/nginx.err"], run)
    wait_for(lambda: listening(server.port), "nginx listens")
    return server


def start_tidegate(run, program, upstream):
    """tidegate in front of that nginx."""
    server = Server("tidegate", free_port(), "/git.test")
    text = TIDEGATE.format(run=run, port=server.port, admin=free_port(), upstream=upstream.port)
    with open(f"{run}/tidegate.yaml", "w") as file:
        file.write(text)
    server.spawn([program, "serve", "--config", f"{run}/tidegate.yaml"], run, env={"PATH": ""})

    def ready():
        url = f"http://127.0.0.1:{server.port}/-/readyz"
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200

    wait_for(ready, "tidegate is ready")
    return server
