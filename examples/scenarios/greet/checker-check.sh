mkdir -p out/checks
cat > out/checks.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<checks xmlns="urn:orch:checks:1">
  <check id="C1" requirement="R1" visibility="visible" file="checks/c1.py" timeout-s="30"/>
  <check id="H1" requirement="R1" visibility="hidden" file="checks/h1.py" timeout-s="30"/>
  <check id="C2" requirement="R2" visibility="visible" file="checks/c2.py" timeout-s="30"/>
  <check id="H2" requirement="R2" visibility="hidden" file="checks/h2.py" timeout-s="30"/>
</checks>
END
check() {
	cat - > "out/checks/$1.py" <<'END'
import http.client
import json
import os
import urllib.parse

PRODUCT = urllib.parse.urlsplit(os.environ["PRODUCT_URL"])


def run(*args):
    """(status, standard output) of the tool."""
    connection = http.client.HTTPConnection(PRODUCT.hostname, PRODUCT.port, timeout=20)
    connection.request("POST", "/run", json.dumps({"args": args}), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    return answer["status"], answer["stdout"]


def point(number, name, good):
    print("%s %d - %s" % ("ok" if good else "not ok", number, name), flush=True)


END
}
check c1
cat >> out/checks/c1.py <<'END'
print("1..1")
point(1, "it greets Ada", run("Ada") == (0, "Hello, Ada!\n"))
END
check h1
cat >> out/checks/h1.py <<'END'
NAMES = ["Grace", "Ægir", "two words", "*", "-n", "$HOME"]
print("1..2")
point(1, "it greets everybody", all(run(name) == (0, "Hello, %s!\n" % name) for name in NAMES))
point(2, "without a name it refuses", run() == (2, ""))
END
check c2
cat >> out/checks/c2.py <<'END'
print("1..1")
point(1, "it says its version", run("--version") == (0, "greet 1.0.0\n"))
END
check h2
cat >> out/checks/h2.py <<'END'
print("1..2")
point(1, "it says its version", run("--version") == (0, "greet 1.0.0\n"))
point(2, "and greets as before", run("Ada") == (0, "Hello, Ada!\n"))
END
