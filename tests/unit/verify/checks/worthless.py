import os, urllib.error, urllib.request

print("1..1")
try:
    print("ok 1" if urllib.request.urlopen(os.environ["PRODUCT_URL"] + "/health", timeout=10).status == 200 else "not ok 1")
except OSError as error:
    print("not ok 1 -", error)
