import concurrent.futures, hashlib, os, socket, sys

address = ("127.0.0.1", 8080)


def echo(size):
    """Sends, half-closes, and reads all that comes back."""
    sent = os.urandom(1024) * (size // 1024)
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(20)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces) == sent


def is_reset():
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(10)
        connection.sendall(b"reset")
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(100):
                pass
        except ConnectionResetError:
            return True
    return False


with concurrent.futures.ThreadPoolExecutor(100) as pool:
    many = list(pool.map(echo, [65536] * 100))
points = {
    "nothing": echo(0),
    "large": echo(8 << 20),
    "a hundred at once": all(many),
    "a reset is a reset": is_reset(),
    "and goes on": echo(1024),
}
print(f"1..{len(points)}")
for number, (name, holds) in enumerate(points.items(), 1):
    print("ok" if holds else "not ok", number, "-", name)
