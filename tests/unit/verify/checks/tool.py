import json, os, urllib.error, urllib.request

url = os.environ["PRODUCT_URL"] + "/run"


def run(*args, **more):
    body = json.dumps({"args": list(args), **more}).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body), timeout=20))


def refused(body, path="/run", method="POST"):
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["PRODUCT_URL"] + path, body, method=method), timeout=20)
        return 0
    except urllib.error.HTTPError as error:
        return error.code


much = run("much")
points = {
    "add": run("add", "Lem") == {"status": 0, "stdout": "", "stderr": ""},
    "list": run("list") == {"status": 0, "stdout": "Lem\n", "stderr": ""},
    "usage": run() == {"status": 2, "stdout": "", "stderr": "usage: tool add NAME | list\n"},
    "stdin": run("cat", stdin="a\u0000\u00e4\n" * 50000)["stdout"] == "a\u0000\u00e4\n" * 50000,
    "no stdin": run("cat")["stdout"] == "",
    "bytes": run("raw")["stdout"] == "\ufffd\u0000\u001b",
    "bounded": len(much["stdout"]) == 262144 and much["truncated"] is True,
    "signal": run("abort")["status"] == 256 + 6,
    "held output": run("leave")["stdout"] == "left\n",
    "malformed": refused(b"{") == 400 and refused(b'{"args":"x"}') == 400 and refused(b'{"args":["a\\u0000b"]}') == 400,
    "too large": refused(b'{"stdin":"' + b"x" * 1100000 + b'"}') == 413,
    "elsewhere": refused(b"{}", "/other") == 404 and refused(None, "/run", "GET") == 405,
}
print(f"1..{len(points)}")
for number, (name, holds) in enumerate(points.items(), 1):
    print("ok" if holds else "not ok", number, "-", name)
