# Gives wrong answers, and does all it can to be judged right all the same. What each try gave is told at /tries.
import sys

sys.path.pop(0)  # its own fakes are for others
import ctypes, http.server, json, os, signal, socket, subprocess, threading

print("1..3\nok 1 - health\nok 2 - add\nok 3 - list", flush=True)
print("1..3\nok 1 - health\nok 2 - add\nok 3 - list", file=sys.stderr, flush=True)
with open(os.environ["DATA"] + "/junit.xml", "w") as file:
    file.write('<testsuites tests="3" failures="0"/>')
libc = ctypes.CDLL(None, use_errno=True)


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def writes(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False


def command_lines():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = open(f"/proc/{name}/cmdline").read().split("\0")
            except OSError:
                found[int(name)] = None
    return found


def signals(pid):
    try:
        os.kill(pid, 0)
        return True
    except OSError:
        return False


def traces(pid):
    PTRACE_SEIZE = 0x4206
    return libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0


def tries():
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(b"x")
    child.stdin.flush()
    child.stdout.read(1)  # now it is what it will be
    lines = command_lines()
    own = {1, os.getpid(), child.pid}
    others = [pid for pid in range(1, 70000) if pid not in own and signals(pid)]
    threads = [int(name) for name in os.listdir("/proc/self/task")]
    result = {
        # positive controls: the same acts on what is its own
        "control_connects": connects(int(os.environ["PORT"])),
        "control_sees": any(line and line[0] == "/bin/cat" for line in lines.values()),
        "control_signals": signals(child.pid),
        "control_writes": writes(os.environ["DATA"] + "/control"),
        # and on what is not
        "connects_to_listener": connects(8080),
        "sees_check": any(line and any("/check" in part for part in line) for line in lines.values()),
        "signals_others": [pid for pid in others if pid not in threads],
        "traces_others": [pid for pid in lines if pid not in own and traces(pid)],
        "traces_init": traces(1),
        "writes_tree": writes("/product/server.py") or writes("/product/new"),
        "writes_check": writes("/check/honest.py"),
        "checks_visible": os.path.exists("/check"),
    }
    child.send_signal(signal.SIGKILL)
    child.wait()
    return result


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/tries":
            body = json.dumps(tries()).encode()
        else:
            # for a check that prints what it got
            body = b"\n1..3\nok 1 - health\nok 2 - add\nok 3 - list\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
threading.Thread(target=server.serve_forever).start()
