import json, os, sys, urllib.request

url = os.environ["PRODUCT_URL"]
print("1..1")
if sys.argv[1:] == ["before"]:
    body = json.dumps({"name": "kept"}).encode()
    print("ok 1" if urllib.request.urlopen(urllib.request.Request(url + "/items", body), timeout=10).status == 201 else "not ok 1")
else:
    items = json.load(urllib.request.urlopen(url + "/items", timeout=10))
    print("ok 1" if sys.argv[1:] == ["after"] and items == ["kept"] else "not ok 1", "- items are kept")
    print("# got", items)
