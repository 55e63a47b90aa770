# Careless: shows what it got before it judges.
import os, urllib.request

body = urllib.request.urlopen(os.environ["PRODUCT_URL"] + "/health", timeout=10).read()
print(body.decode(), flush=True)
print("1..1")
print("ok 1" if body == b'{"status": "ok"}' else "not ok 1", "- health")
