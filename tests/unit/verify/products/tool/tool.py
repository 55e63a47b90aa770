# A product that is a command: add NAME, list, cat, and bad habits.
import os, sys, time

store = os.environ["DATA"] + "/names"
verb = sys.argv[1] if len(sys.argv) > 1 else ""
if verb == "add":
    with open(store, "a") as file:
        file.write(sys.argv[2] + "\n")
elif verb == "list":
    print(open(store).read() if os.path.exists(store) else "", end="")
elif verb == "cat":
    sys.stdout.buffer.write(sys.stdin.buffer.read())
elif verb == "raw":
    sys.stdout.buffer.write(b"\xff\x00\x1b")
elif verb == "much":
    print("x" * 1000000)
elif verb == "abort":
    os.abort()
elif verb == "leave":
    # a child that holds the output
    if os.fork() == 0:
        time.sleep(600)
    print("left", flush=True)
else:
    print("usage: tool add NAME | list", file=sys.stderr)
    sys.exit(2)
