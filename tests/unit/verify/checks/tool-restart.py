import json, os, sys, urllib.request


def run(*args):
    body = json.dumps({"args": list(args)}).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(os.environ["PRODUCT_URL"] + "/run", body), timeout=20))


print("1..1")
if sys.argv[1] == "before":
    print("ok 1" if run("add", "kept")["status"] == 0 else "not ok 1")
else:
    print("ok 1" if run("list")["stdout"] == "kept\n" else "not ok 1")
