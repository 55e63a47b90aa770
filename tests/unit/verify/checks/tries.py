import json, os, urllib.request

got = json.load(urllib.request.urlopen(os.environ["PRODUCT_URL"] + "/tries", timeout=20))
print(f"1..{len(got)}")
for number, (name, value) in enumerate(got.items(), 1):
    wanted = name.startswith("control_")
    print("ok" if bool(value) == wanted else "not ok", number, "-", name)
    print("#", value)
