# What a check can see of the product: nothing but its port.
import os, socket, sys


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


points = {
    "no tree": not os.path.exists("/product"),
    "no data": not os.path.exists("/data"),
    "only its own file": os.listdir("/check") == ["alone.py"],
    "its file can not be written": not os.access("/check/alone.py", os.W_OK),
    "the url": os.environ["PRODUCT_URL"] == "http://127.0.0.1:8080",
    "the joint": connects(8080),
    "not the product's port": not connects(8000),
    "no argument": sys.argv[1:] == [],
    "isolated": sys.flags.isolated == 1 and "" not in sys.path,
    "nothing of the host": not any(name.startswith("ORCH_TEST") for name in os.environ),
}
print(f"1..{len(points)}")
for number, (name, holds) in enumerate(points.items(), 1):
    print("ok" if holds else "not ok", number, "-", name)
