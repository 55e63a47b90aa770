cat > tree/greet.sh <<'END'
# greet.sh NAME | --version
if [ $# -ne 1 ]; then
	echo "usage: greet.sh NAME" >&2
	exit 2
fi
if [ "$1" = --version ]; then
	echo "greet 1.0.0"
	exit 0
fi
printf 'Hello, %s!\n' "$1"
END
sh tree/greet.sh --version
#---
python3 -B -c '
import json, os, urllib.error, urllib.request
request = urllib.request.Request(os.environ["ORCH_BROKER"] + "/notify.send", method="POST",
                                 data=json.dumps({"text": "greet 1.0.0 is out"}).encode(),
                                 headers={"Content-Type": "application/json", "Idempotency-Key": "announce"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=60) as answer:
        print("announced:", answer.status, answer.read(500).decode())
except urllib.error.HTTPError as error:
    print("not announced:", error.code, error.read(500).decode())
except OSError as error:
    print("not announced:", error)
'
